"""How much memory a call takes."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

__all__ = ["NOISE", "peak_of"]

NOISE = 2**20  # bytes that tests before and the measurement itself may add


def peak_of(call: Callable[[], object], *, only_once: bool = False) -> int:
    """Most bytes that Python and NumPy hold at once during a call, beside what they held before.

    The call is made twice, and the second one measured: the first one loads what a process loads once, such as modules and
    kernels, whose size depends on what other tests have loaded. ``only_once`` is for calls that cannot be repeated.
    """
    if not only_once:
        call()
    gc.collect()
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

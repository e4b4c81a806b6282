"""How much memory a call takes."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

__all__ = ["NOISE", "peak_of"]

NOISE = 2**20  # bytes that tests before and the measurement itself may add


def peak_of(call: Callable[[], object], *, only_once: bool = False) -> int:
    """Most bytes that Python and NumPy hold at once during a call, beside what they held before.

    The first call loads what a process loads once, such as modules and kernels, whose size depends on what other tests have
    loaded. Two more are measured, and the lower one counts: other threads of the process, such as a cluster's, add to it by
    chance. ``only_once`` is for calls that cannot be repeated.
    """
    if only_once:
        return _peak_of(call)
    call()
    return min(_peak_of(call) for _ in range(2))


def _peak_of(call: Callable[[], object]) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

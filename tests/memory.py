"""How much memory a call takes."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

__all__ = ["NOISE", "peak_of"]

NOISE = 2**20  # bytes that tests before, modules loaded meanwhile and the measurement itself may add


def peak_of(call: Callable[[], object]) -> int:
    """Most bytes that Python and NumPy hold at once during a call, beside what they held before."""
    gc.collect()
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

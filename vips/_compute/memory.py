"""Memory that is freed and used again."""

from __future__ import annotations

from functools import cache

import numpy as np

__all__ = ["keep_freed_memory"]

# The largest block that glibc learns from is of 32 MiB.
_LEARNT_FROM = 31 * 2**20


@cache
def keep_freed_memory() -> None:
    """Have this process keep what it freed, up to 62 MiB for each thread, for the next chunk's arrays.

    glibc keeps twice the size of the largest block that was allocated by itself and freed so far: mallopt(3), under
    M_MMAP_THRESHOLD. The rest goes back to the system and comes again page by page. Chunks are freed again and again: without
    this, a twentieth of the time of a fit of LDA was spent on that, and more or less of it as blocks happened to lie.
    """
    np.empty(_LEARNT_FROM, np.uint8)  # not touched, and freed at once

"""Computers with other numbers of processors."""

import numba

from vips.core.exact import threads


def with_processors(patch, number, is_pool_new=False):
    """Kernels and fits find so many processors, and perhaps no thread that has begun."""
    patch.setattr(numba.config, "NUMBA_NUM_THREADS", number)
    patch.setattr(threads, "_processors", number)
    if is_pool_new:
        patch.setattr(threads, "_pool", threads._Pool())

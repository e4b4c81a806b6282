"""A Dask cluster on this machine, set up as docs/scale.md recommends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

# glibc's allocator keeps arrays up to this size for reuse. Under Dask's default it maps every large array anew.
ALLOCATION = {"distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 2**25}


@contextmanager
def local_cluster(n_workers: int, *, default_allocation: bool = False, **arguments) -> Iterator[tuple]:
    """A cluster and its client; ``arguments`` are those of ``dask.distributed.LocalCluster``."""
    import dask
    from dask.distributed import Client, LocalCluster

    arguments |= {"n_workers": n_workers, "threads_per_worker": 1, "dashboard_address": None}
    allocation = nullcontext() if default_allocation else dask.config.set(ALLOCATION)
    with allocation, LocalCluster(**arguments) as cluster, Client(cluster) as client:
        yield cluster, client

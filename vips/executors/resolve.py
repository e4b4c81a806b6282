"""From the argument of ``fit`` to an executor."""

from __future__ import annotations

import sys
from collections.abc import Callable

from vips.core.execution.base import Executor
from vips.core.execution.local import Threads
from vips.executors.joblib import Joblib

__all__ = ["resolve"]


def resolve(executor: object) -> Executor:
    """The executor that a user's argument names.

    Parameters
    ----------
    executor : None, "processes", "joblib" or dask.distributed.Client
        None is threads of this process. "processes" takes as many workers as there are processors; "joblib" uses the
        ``joblib.parallel_config`` around the fit.

    Raises
    ------
    TypeError, ValueError
        For anything else, and for a cluster without workers.
    """
    if isinstance(executor, Executor):
        resolved = executor
    elif executor is None or (isinstance(executor, str) and executor in _BY_NAME):
        resolved = Threads() if executor is None else _BY_NAME[executor]()
    elif _is_dask_client(executor):
        from vips.executors.dask import Cluster

        resolved = Cluster(executor)
    else:
        error = ValueError if isinstance(executor, str) else TypeError
        names = ", ".join(f'"{name}"' for name in _BY_NAME)
        raise error(f"`executor` must be None, {names} or a dask.distributed.Client, got {executor!r}.")
    resolved.check()
    return resolved


def _is_dask_client(executor: object) -> bool:
    distributed = sys.modules.get("distributed")  # imported wherever there is a client
    return distributed is not None and isinstance(executor, distributed.Client)


_BY_NAME: dict[str, Callable[[], Executor]] = {
    "processes": lambda: Joblib("loky"),
    "joblib": Joblib,
}

"""Posteriors as arrays, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["copied", "posterior_arrays", "restore_posterior", "under"]


def posterior_arrays(posterior: Any) -> dict[str, np.ndarray]:
    """A posterior as arrays: it has ``to_arrays()``, or is a dict of arrays and of such posteriors."""
    if not isinstance(posterior, Mapping):
        return {name: np.asarray(value) for name, value in posterior.to_arrays().items()}
    arrays: dict[str, np.ndarray] = {}
    for name, value in posterior.items():
        if hasattr(value, "to_arrays"):
            arrays |= {f"{name}.{field}": array for field, array in posterior_arrays(value).items()}
        else:
            arrays[name] = np.asarray(value)
    return arrays


def restore_posterior(like: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Inverse of ``posterior_arrays``, to the type of ``like``.

    Raises
    ------
    ValueError
        If names or shapes differ from those of ``like``, or an array holds no numbers.
    """
    if any(array.dtype.kind not in "biuf" for array in arrays.values()):
        raise ValueError("its posterior holds no numbers")
    if hasattr(like, "check_arrays"):
        like.check_arrays(arrays)
    shapes, expected = ({n: a.shape for n, a in held.items()} for held in (arrays, posterior_arrays(like)))
    if shapes != expected:
        raise ValueError(f"A saved posterior has arrays {shapes}, the model's are {expected}.")
    return _restored(like, arrays)


def _restored(like: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    if not isinstance(like, Mapping):
        return type(like).from_arrays(arrays)
    return {
        name: _restored(value, {n.removeprefix(f"{name}."): a for n, a in arrays.items() if n.startswith(f"{name}.")})
        if hasattr(value, "to_arrays")
        else arrays[name]
        for name, value in like.items()
    }


def copied(posterior: Any) -> Any:
    """The same posterior, without what E-steps have computed: if no record was read, they have not."""
    return restore_posterior(posterior, posterior_arrays(posterior))


def under(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """The arrays whose names begin so, without it."""
    return {name.removeprefix(f"{prefix}/"): value for name, value in arrays.items() if name.startswith(f"{prefix}/")}

"""Standard deviations of noise in files: a number for each block, or nested lists where entries differ."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

__all__ = ["TOO_LARGE", "as_lists", "from_lists"]

TOO_LARGE = 1e100  # squares of smaller numbers do not overflow


def as_lists(noise_std: Mapping[str, float | np.ndarray]) -> dict[str, object]:
    """Deviations of each block, for JSON."""
    return {name: np.asarray(std, dtype=np.float64).tolist() for name, std in noise_std.items()}


def from_lists(
    saved: object, shapes: Mapping[str, tuple[int, ...]], *, differ: bool = True
) -> dict[str, float | np.ndarray]:
    """Inverse of :func:`as_lists`, for blocks of these shapes.

    Parameters
    ----------
    saved : object
        What the file holds.
    shapes : dict of str to tuple of int
    differ : bool
        Whether entries of a block can have deviations of their own.

    Raises
    ------
    ValueError
        If the file holds other blocks, or what is no deviation of theirs.
    """
    if not isinstance(saved, Mapping) or set(saved) != set(shapes):
        raise ValueError("its standard deviations of noise are not those of the model's blocks")
    if not differ and any(isinstance(value, list) for value in saved.values()):
        raise ValueError("its standard deviations of noise differ within a block, and no fit of the model makes such")
    return {name: _deviation(saved[name], shape) for name, shape in shapes.items()}


def _deviation(value: object, shape: tuple[int, ...]) -> float | np.ndarray:
    if type(value) is not float:
        try:
            array = np.array(value)
            fits = (
                array.dtype == np.float64
                and array.ndim == len(shape)
                and np.broadcast_shapes(array.shape, shape) == shape
            )
        except ValueError:  # lists of different lengths, shapes that do not fit
            fits = False
        if not fits or not isinstance(value, list):
            raise ValueError("its standard deviations of noise are no numbers, or do not fit to the blocks")
        value = array
    if not np.all(np.isfinite(value) & (np.greater_equal(value, 0.0)) & np.less(value, TOO_LARGE)):
        raise ValueError("its standard deviations of noise are not finite numbers ≥ 0")
    return value

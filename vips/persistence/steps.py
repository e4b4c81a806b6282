"""What a fit has released, in files: deviations of its noise as lists, and the steps that it keeps as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from vips.core.phases import phases_of, step_of
from vips.core.posteriors import posterior_arrays, restore_posterior, under
from vips.core.sums import Block, ReleasedStep

__all__ = ["TOO_LARGE", "as_lists", "check_totals", "from_lists", "restore_steps", "step_arrays"]

TOO_LARGE = 1e100  # squares of smaller numbers do not overflow


def check_totals(totals: Mapping[str, np.ndarray], blocks: Mapping[str, Block], what: str) -> None:
    """Raise ValueError unless these arrays of a file are moderate numbers in these blocks."""
    if {name: value.shape for name, value in totals.items()} != {name: block.shape for name, block in blocks.items()}:
        raise ValueError(f"it holds {what} of another model")
    if not all(value.dtype.kind == "f" and (np.abs(value) < TOO_LARGE).all() for value in totals.values()):  # nor NaN
        raise ValueError(f"it holds {what} that no fit makes")


def step_arrays(steps: Iterable[ReleasedStep]) -> dict[str, np.ndarray]:
    """Totals and posterior of each step, under its number."""
    arrays = {}
    for step in steps:
        arrays |= {f"{step.number}/totals/{name}": value for name, value in step.totals.items()}
        arrays |= {f"{step.number}/posterior/{name}": value for name, value in posterior_arrays(step.posterior).items()}
    return arrays


def restore_steps(model, n_steps: int, last: int, arrays: Mapping[str, np.ndarray]) -> list[ReleasedStep]:
    """Inverse of :func:`step_arrays`, for the steps up to ``last`` that a fit of ``n_steps`` to this model keeps. ValueError if
    there are others, or their arrays are not those of the model."""
    steps, phases = [], phases_of(model, n_steps)
    for number in sorted(step for step in model.kept_steps(n_steps) if step <= last):
        of_step = under(arrays, str(number))
        totals = under(of_step, "totals")
        blocks = step_of(phases, number)[0].blocks
        check_totals(totals, blocks, f"totals of step {number}")
        totals = {name: totals[name] for name in blocks}
        posterior = restore_posterior(model.shaped_after(number - 1), under(of_step, "posterior"))
        steps.append(ReleasedStep(number, totals, posterior))
    if step_arrays(steps).keys() != arrays.keys():
        raise ValueError("it holds steps that the model does not keep")
    return steps


def as_lists(noise_std: Mapping[str, float | np.ndarray]) -> dict[str, object]:
    """Deviations of each block, for JSON."""
    return {name: np.asarray(std, dtype=np.float64).tolist() for name, std in noise_std.items()}


def from_lists(
    saved: object, shapes: Mapping[str, tuple[int, ...]], *, differ: bool = True
) -> dict[str, float | np.ndarray]:
    """Inverse of :func:`as_lists`, for blocks of these shapes; ``differ`` says whether entries of one can have deviations of
    their own. ValueError if the file holds other blocks, or what is no deviation of theirs."""
    if not isinstance(saved, Mapping) or set(saved) != set(shapes):
        raise ValueError("its standard deviations of noise are not those of the model's blocks")
    if not differ and any(isinstance(value, list) for value in saved.values()):
        raise ValueError("its standard deviations of noise differ within a block, and no fit of the model makes such")
    return {name: _deviation(saved[name], shape) for name, shape in shapes.items()}


def _deviation(value: object, shape: tuple[int, ...]) -> float | np.ndarray:
    if type(value) is not float:
        try:
            array = np.array(value)
            is_like = array.dtype == np.float64 and array.ndim == len(shape)
            fits = is_like and np.broadcast_shapes(array.shape, shape) == shape
        except ValueError:  # lists of different lengths, shapes that do not fit
            fits = False
        if not fits or not isinstance(value, list):
            raise ValueError("its standard deviations of noise are no numbers, or do not fit to the blocks")
        value = array
    if not np.all(np.isfinite(value) & (np.greater_equal(value, 0.0)) & np.less(value, TOO_LARGE)):
        raise ValueError("its standard deviations of noise are not finite numbers ≥ 0")
    return value

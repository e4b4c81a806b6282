"""The steps of a fit that a model keeps, as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from vips.core.phases import phases_of, step_of
from vips.core.posteriors import posterior_arrays, restore_posterior, under
from vips.core.sums import Block, ReleasedStep
from vips.persistence.deviations import TOO_LARGE

__all__ = ["check_totals", "restore_steps", "step_arrays"]


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
    """Inverse of :func:`step_arrays`, for the steps up to ``last`` that a fit of ``n_steps`` to this model keeps.

    Raises
    ------
    ValueError
        If there are others, or their arrays are not those of the model.
    """
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

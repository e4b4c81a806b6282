"""The stochastic variational-Bayes loop: Algorithms 1, 2 and 4 of Park et al. (arXiv:1611.00340) are this one loop.

===================  =============  ===========================================================
here                 in the paper   meaning
===================  =============  ===========================================================
``total``            S s̄            sum of the clipped statistics of one Poisson sample
``sampling_rate``    ν              q; ``noisy / q`` estimates the total of all records
``average``          s̃              running average of noisy full-data totals, never projected
``noise_std``                       standard deviation of the noise in ``average``, exactly
``posterior``        q(m)           a valid view of ``average``; all that an E-step sees
``transport``                       carries ``average`` to the next E-step's coordinates, where they move
``phase``                           what a step sums, and how the next posterior follows: ``vips/core/phases.py``
===================  =============  ===========================================================

Left of ``noisy`` everything is private; from ``noisy`` on everything is public.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from tqdm.auto import tqdm

from vips.core.execution.local import Threads, ThreadWorkers
from vips.core.execution.partitions import Task
from vips.core.mechanism.noise import mirrored_upper
from vips.core.phases import phases_of, step_of
from vips.core.posteriors import copied
from vips.core.sums import NoisyTotals, ReleasedStep

if TYPE_CHECKING:
    from vips.core.contract import Contract
    from vips.core.execution.base import Executor, Workers
    from vips.core.ledger.run import LedgerRun
    from vips.core.mechanism.noise import Randomness
    from vips.core.phases import FitPhase
    from vips.core.plan import PrivacyPlan
    from vips.core.records.source import DataSource
    from vips.core.sums import Block

__all__ = ["Journal", "Settling", "run"]

# Seconds before a progress bar appears. Outside of a terminal there is none.
PROGRESS_DELAY = 3.0


class Journal(Protocol):
    """The record of a fit: its place in a ledger, and its checkpoint (:class:`vips.persistence.checkpoint.Journal`)."""

    run: LedgerRun
    start: Any  # step, average and noise_std of an interrupted fit; None for a new one

    def restored(self, like: Any) -> Any: ...

    def restored_steps(self, model: Contract, plan: PrivacyPlan) -> list[ReleasedStep]: ...

    def commit(
        self, step: int, noisy: Mapping[str, np.ndarray], average: Mapping[str, np.ndarray],
        noise_std: Mapping[str, float | np.ndarray], posterior: Any, steps: Sequence[ReleasedStep],
    ) -> None: ...  # fmt: skip


class Settling(Protocol):
    """Tells when an ordinary fit has settled (:class:`vips.settling.Settling`)."""

    def has_settled(self, posterior: Any) -> bool: ...


def run(
    model: Contract, data: DataSource, plan: PrivacyPlan, journal: Journal, executor: Executor | None = None,
    settling: Settling | None = None, start: Any = None,
) -> tuple[Any, NoisyTotals]:  # fmt: skip
    """Fit ``model`` to ``data`` as ``plan`` allows.

    Parameters
    ----------
    model : ConjugateExponentialModel
    data : DataSource
    plan : PrivacyPlan
        With a clip norm.
    journal : Journal
        Releases each step through its place in a ledger, and writes it to a checkpoint; says where an interrupted fit stopped.
    executor : Executor, optional
        Computes the sums; see ``vips.executors.resolve``. Noise is always drawn in this process.
    settling : Settling, optional
        Stops an ordinary fit that has settled, in its last phase.
    start : posterior, optional
        At which an ordinary fit begins; it may depend on records: a private fit raises ValueError. None: ``model.start``.

    Returns
    -------
    posterior
        From the last average.
    noisy_totals : NoisyTotals
        The last average, the noise in it, and the steps that the model keeps.

    Guarantees
    ----------
    - The data enter only through ``clipped_sum``, once per step, and each record's share in it has norm ≤ C.
    - The noise of a step is drawn once, on the whole sum. After that, the step does not use the data again.
    - A noisy total is entered in the ledger, and its step written to the checkpoint, before the next step uses it.
    - The phases, the number of steps, the shapes and the scale factors are public numbers of the plan and the model.
    """
    if start is not None and plan.is_private:
        raise ValueError("A private fit begins where model.start says: another start may depend on the records.")
    randomness = plan.randomness(model.random_state)
    blocks = model.blocks()
    phases = phases_of(model, plan.n_steps, blocks)
    average, first_posterior = model.start(randomness.initial)
    of_blocks = {name: block.shape for name, block in blocks.items()}
    if (shapes := {name: np.shape(value) for name, value in average.items()}) != of_blocks:
        raise ValueError(f"A fit begins with arrays of shapes {shapes}, its blocks are {of_blocks}.")
    _ = copied(first_posterior) if plan.is_private else None  # raises before a step if it holds no numbers
    posterior = first_posterior if start is None else start
    noise_std: dict[str, float | np.ndarray] = dict.fromkeys(blocks, 0.0)
    first, steps, kept = 1, [], set(model.kept_steps(plan.n_steps))
    if journal.start is not None:
        first, average, noise_std = journal.start.step + 1, dict(journal.start.average), dict(journal.start.noise_std)
        steps, posterior = journal.restored_steps(model, plan), journal.restored(model.shaped_after(first - 1))
    mechanism = plan.mechanism(blocks, randomness, noise_std)
    with (executor or Threads()).over(data) as workers:
        for t in tqdm(range(first, plan.n_steps + 1), desc="steps", delay=PROGRESS_DELAY, disable=None, leave=False):
            phase, s = step_of(phases, t)
            step_size = _by_block(phase.step_size(s), phase.blocks)
            total = clipped_sum(model, phase, data, posterior, plan, randomness, t, workers)
            noisy = journal.run.release(mechanism, total, t)
            if t in kept:
                totals = {name: value / plan.sampling_rate for name, value in noisy.items()}
                steps.append(ReleasedStep(t, totals, copied(posterior)))
            for name, rho in step_size.items():
                average[name] = (1.0 - rho) * average[name] + (rho / plan.sampling_rate) * noisy[name]
            stated = mechanism.std_of_average(step_size)
            previous, posterior = posterior, phase.update_after(s)(average, stated, posterior)
            average, noise_std = model.transport(average, stated, previous, posterior)
            if noise_std is not stated:
                mechanism.carry(noise_std)
            journal.commit(t, noisy, average, noise_std, posterior, steps)
            if settling is not None and phase is phases[-1] and settling.has_settled(posterior):
                break
    return posterior, NoisyTotals(average, noise_std, tuple(steps))


def clipped_sum(
    model: Contract, phase: FitPhase, data: DataSource, posterior: Any, plan: PrivacyPlan, randomness: Randomness,
    t: int, workers: Workers | None = None,
) -> dict[str, np.ndarray]:  # fmt: skip
    """Σ over the sample of step ``t``, which is in this phase, of each record's statistics, scaled into the ball of radius C.

    ``workers`` compute it partition by partition (``vips.core.execution.partitions``); None computes it in this process.

    Guarantees
    ----------
    - Adding or removing one record changes the result, divided by block scales, by at most C in L2 norm.
    - The result has the blocks of the phase, and no others.
    - With ``noise="discrete"`` the sum is in whole units of the plan's lattice, and exact: it depends on the set of
      sampled records only, not on their order, chunks or executor.
    - An empty sample, a defective record and an empty data set are ordinary input: no record raises an error, unless
      ``on_invalid="raise"`` asks for it.
    - The result is the sum of all partitions, or an error: a lost worker's share is computed again, with the same coins.
    """
    task = Task.of_step(model, phase, posterior, plan.of_step(t), data.is_checked)
    total = (workers or ThreadWorkers(data)).sum(task, plan.sampler(randomness, t))
    symmetric = mirrored_upper if plan.rounds_records else _symmetrised  # noise is drawn for one half of a matrix
    return {name: symmetric(total[name]) if block.symmetric else total[name] for name, block in phase.blocks.items()}


def _by_block(step_size: float | Mapping[str, float], blocks: Mapping[str, Block]) -> dict[str, float]:
    """Step sizes by block, checked before the data are read."""
    by_block = dict(step_size) if isinstance(step_size, Mapping) else dict.fromkeys(blocks, step_size)
    if set(by_block) != set(blocks) or not all(0.0 <= rho <= 1.0 for rho in by_block.values()):
        raise ValueError(f"step_size must give a number between 0 and 1, for every block, got {step_size!r}.")
    return by_block


def _symmetrised(matrix: np.ndarray) -> np.ndarray:
    """(A + Aᵀ)/2, whose norm is never above that of A."""
    return 0.5 * (matrix + np.swapaxes(matrix, -1, -2))

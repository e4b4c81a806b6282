"""How often does an attack on the release find a record? True positives at few false ones, on generated records.

The attacker knows all records but one, sees every noisy total, and asks whether that record is in the data. The most powerful
test is the likelihood ratio: what a total differs by from the sum of the known records, along the record's own share of it.

===========  ====================================================================================================
symbol       meaning
===========  ====================================================================================================
v_t          clipped share of the record in the sum of step t, at the posterior that step t - 1 released
r_t          noisy total less the sum of the known records: v_t + noise if the record was summed, else noise
x_t          log-likelihood ratio of a step without sampling, (<r_t, v_t> - |v_t|²/2)/σ_t²
L            Σ_t log(1 - q + q exp x_t): the attack's score
===========  ====================================================================================================

Every fit holds a new half of the records that are looked for, so that one fit gives a score of each (Steinke, Nasr and
Jagielski, 2023, arXiv:2305.08846). Without sampling scores are normal, and what is found is read off normal curves through a
record's scores in fits with and without it (Carlini et al., 2022, arXiv:2112.03570). With sampling it is counted.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr, ndtri
from sklearn.pipeline import Pipeline

from vips._support.pipelines import model_of
from vips._support.validation import check_integer
from vips.core.exact.blas_threads import one_blas_thread
from vips.core.phases import phases_of, step_of
from vips.core.plan import PrivacyPlan
from vips.report.report import PrivacyReport
from vips.report.words import loss, most_found
from vips.tools.auditing.records import Table
from vips.tools.auditing.replay import unfitted, watched
from vips.tools.auditing.search import ClippedSum, as_numbers, coordinates

if TYPE_CHECKING:
    from vips.tools.planning.trial import Like

__all__ = ["Attack", "attacked_fits", "check_attack"]

RATES = 0.001, 0.01  # of false positives
LEAST_FITS, N_FITS_WITHOUT, N_RESAMPLED = 200, 20, 200
N_TARGETS, N_CANDIDATES = 12, 200
TYPICAL = "records at random"
KINDS = {TYPICAL: slice(N_TARGETS), f"the {N_TARGETS} easiest of {N_CANDIDATES}": slice(N_TARGETS, None)}
NO_NOISE = 1e-6  # deviation that the attacker assumes where there is none
_DELTA = 1e-6  # at which fits are named


@dataclass(frozen=True)
class Attack:
    """What an attack reaches on generated records. That is no upper limit: ``bounds`` are.

    ``str()`` says it in words.

    Attributes
    ----------
    reached : dict of str to tuple of float
        Share of the records in the data that the attack finds, where it accuses 0.1 % and 1 % of those that are not: of records
        at random, and of the ones among 200 with the largest shares.
    errors : dict of str to tuple of float
        Standard errors of these.
    without_noise : tuple of float
        The same attack on records at random, in fits without clip and noise. Where this is not near 1, the attack is weak.
    n_fits : int
    report : PrivacyReport
        Of the fits that were attacked.
    """

    reached: dict[str, tuple[float, ...]]
    errors: dict[str, tuple[float, ...]]
    without_noise: tuple[float, ...]
    n_fits: int
    report: PrivacyReport

    @property
    def bounds(self) -> tuple[float, ...]:
        """What no attack on this release exceeds, whatever the record."""
        return tuple(most_found(self.report, rate) for rate in RATES)

    def __str__(self) -> str:
        reached = "; ".join(
            f"{_percent(self.reached[who])} (± {_percent(self.errors[who])}) of {who}" for who in self.reached
        )
        return (
            f"What this attack reaches on generated records, no upper limit: if it accuses {_percent(RATES)} of the records "
            f"that are not in the data, it finds, of those that are, {reached}. Without noise it finds "
            f"{_percent(self.without_noise)}. No attack finds more than {_percent(self.bounds)}. It knows all records but the "
            f"one that it looks for; tried on {self.n_fits} fits with {loss(self.report.epsilon(_DELTA), _DELTA)}."
        )


def _percent(shares: tuple[float, ...]) -> str:
    return " and ".join(f"{float(f'{100.0 * share:.2g}'):g} %" for share in shares)


def check_attack(n_fits: int, records: Like) -> None:
    """Raise ValueError, before a fit, where these fits cannot be attacked. 0 fits always can."""
    check_integer("attack", n_fits, 0)
    if 0 < n_fits < LEAST_FITS:
        raise ValueError(f"`attack` must be 0, or at least {LEAST_FITS} fits to say anything, got {n_fits}.")
    if n_fits and records.groups is not None:
        raise ValueError("An attack looks for rows, and these records are persons of several rows: leave `attack` out.")
    if n_fits and records.n_rows < 2 * N_CANDIDATES:
        raise ValueError(f"An attack needs at least {2 * N_CANDIDATES} records: give a larger `n_records`.")


def attacked_fits(fitted, records: Like, n_fits: int, rng: np.random.Generator) -> Attack:
    """Attack copies of ``fitted``, a private model, or a pipeline whose encoder keeps its columns, fitted to ``records``.

    Guarantees
    ----------
    - Nothing is charged, and the model is not changed: copies of it are fitted, to these records alone.
    """
    model = model_of(fitted)
    if isinstance(fitted, Pipeline):
        records = replace(records, X=fitted[0].transform(records.X))
    plan, report = model.privacy_.plan, model.privacy_
    are_normal = plan.sampling_rate == 1.0
    with one_blas_thread():  # of many small products
        lab = _Lab(model, records, plan)
        sets = lab.scores(plan, rng, n_fits)
        ordinary = PrivacyPlan.non_private(sampling_rate=plan.sampling_rate, n_steps=plan.n_steps)
        without = lab.scores(ordinary, rng, N_FITS_WITHOUT)
    drawn, reached, errors = rng.integers(n_fits, size=(N_RESAMPLED, n_fits)), {}, {}
    for who, which in KINDS.items():
        scores, is_in = (part[:, which] for part in sets)
        reached[who] = tuple(_reached(scores, is_in, are_normal))
        errors[who] = tuple(np.std([_reached(scores[fits], is_in[fits], are_normal) for fits in drawn], axis=0))
    powers = _reached(*(part[:, KINDS[TYPICAL]] for part in without), are_normal=False)
    return Attack(reached, errors, tuple(powers), n_fits, report)


def _reached(scores: np.ndarray, is_in: np.ndarray, are_normal: bool) -> np.ndarray:
    """Share of the records in the data that are found at each rate; scores have the shape (n_fits, n_records), as ``is_in``."""
    if not are_normal:
        thresholds = np.quantile(scores[~is_in], 1.0 - np.array(RATES), method="higher")
        return np.mean(scores[is_in][:, None] > thresholds, axis=0)
    with_it, without = (np.ma.array(scores, mask=is_in == left_out) for left_out in (False, True))
    gap, spread = with_it.mean(axis=0) - without.mean(axis=0), np.maximum(with_it.std(axis=0), 1e-150)
    return ndtr([np.mean((gap + ndtri(rate) * without.std(axis=0)) / spread) for rate in RATES])


@dataclass(frozen=True, kw_only=True)
class _Watched(PrivacyPlan):
    """A plan that keeps the noise of each step, as numbers, and the coins of the first records."""

    drawn: list = field(default_factory=list, compare=False, repr=False)
    coins: list = field(default_factory=list, compare=False, repr=False)

    def sampler(self, randomness, step):
        coins = super().sampler(randomness, step)
        self.coins.append(coins(0))
        return coins

    def add_noise(self, total, blocks, randomness, step):
        noisy = super().add_noise(total, blocks, randomness, step)
        numbers = as_numbers(total, blocks, self.of_step(step).lattice(blocks))
        self.drawn.append(coordinates(noisy, blocks) - coordinates(numbers, blocks))
        return noisy


class _Lab:
    """Copies of a model, fitted to records of which a few are looked for: some at random, and as many of the easiest."""

    def __init__(self, model, records: Like, plan: PrivacyPlan) -> None:
        self.model, self.records = model, records
        self.targets, self.others = np.split(np.arange(records.n_rows), [N_CANDIDATES])
        _, lengths = self._attacked(plan, np.ones(N_CANDIDATES, bool))
        easiest = N_TARGETS + np.argsort(-lengths[N_TARGETS:], kind="stable")[:N_TARGETS]
        self.targets = self.targets[[*range(N_TARGETS), *easiest]]

    def scores(self, plan: PrivacyPlan, rng: np.random.Generator, n_fits: int) -> tuple[np.ndarray, np.ndarray]:
        """L of each target in each fit, and whether it was in the data."""
        is_in = rng.random((n_fits, len(self.targets))) < 0.5
        return np.array([self._attacked(plan, members)[0] for members in is_in]), is_in

    def _attacked(self, plan: PrivacyPlan, members: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """L of each target, and Σ_t |v_t|²/σ_t², in a fit to these members of the targets and to all others."""
        plan, posteriors = _Watched(**{f.name: getattr(plan, f.name) for f in fields(PrivacyPlan)}), []
        model = unfitted(self.model, plan)
        with warnings.catch_warnings(), watched(model, lambda *seen: posteriors.append(seen[-1])):
            warnings.simplefilter("ignore")  # of generated records
            self.records.take(np.concatenate([self.targets[members], self.others])).fit(model)
        wanted = self.records.take(self.targets)
        table, phases = Table(*model.records_of(wanted.X, wanted.y).arrays), phases_of(model, plan.n_steps)
        scores, lengths, q = np.zeros(len(members)), np.zeros(len(members)), plan.sampling_rate
        for t, (noise, coins) in enumerate(zip(plan.drawn, plan.coins, strict=True), 1):
            std = plan.of_step(t).noise_std() or NO_NOISE
            shares = ClippedSum(model, plan, step_of(phases, t)[0], posteriors[t - 1]).shares(table) / std
            summed = np.zeros(len(members), bool)
            summed[np.flatnonzero(members)[coins.rows(members.sum())]] = True
            squares = np.sum(shares**2, axis=1)
            ratios = shares @ (noise / std) + (summed - 0.5) * squares
            scores += ratios if q == 1.0 else np.logaddexp(np.log1p(-q), np.log(q) + ratios)
            lengths += squares
        return scores, lengths

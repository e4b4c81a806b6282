"""Which classes are real: each stands beside classes that noise alone makes. Post-processing, which costs no budget.

A private fit shows K classes even where columns are independent: noise moves the tables of a class, the next step assigns
records by them, and so the noise persists. So the fit is repeated on generated records, whose answers are drawn independently
from the released frequencies, under as much noise.

=========  =====================================================================================================
symbol     meaning
=========  =====================================================================================================
A (K, V)   average of the noisy counts of answers, noise of standard deviation s in each
π_k        share of class k in the average of the noisy counts of classes
r_k²       (1 - π_k)² s² + π_k² (K - 1) s²: noise in A_kv - π_k Σ_j A_jv
z_kv       (A_kv - π_k Σ_j A_jv) / r_k: deviation from the frequencies of all, in standard deviations of the noise
n, n'      number of records that would add as much to the counts; n' = min(n, 5,000) are generated
=========  =====================================================================================================

A class stands out by the root of the mean of z². It is real if that is at least 1.3 times the largest value of all generated
fits, and doubtful if it is larger than that.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vips.core.plan import PrivacyPlan
from vips.models._apart import copy_of, fit_apart
from vips.models.components.categories import Categories

__all__ = ["ClassEvidence", "class_evidence"]

_N_FITS, _MOST_RECORDS, _FEWEST_RECORDS = 4, 5_000, 100
_MARGIN = 1.3
_EMPTY = 3.0  # standard deviations of the noise in a class's count
_NOISE = (1e-12, 1e12)  # what a plan accepts


@dataclass(frozen=True)
class ClassEvidence:
    """How far each class differs from all records together, and from classes that noise makes.

    Attributes
    ----------
    labels : list of str
        "real", "doubtful", "noise", or "empty": a class whose noisy count cannot be told from 0. A large class that holds
        people of all kinds differs little from all records together, and is called noise.
    deviation : ndarray of shape (n_classes,)
        Root mean square of the deviations of a class's answers from the frequencies, in standard deviations of the noise.
    deviation_of_noise : float
        The same for the class that stands out most in the fits to generated records without classes.
    """

    labels: list[str]
    deviation: np.ndarray
    deviation_of_noise: float

    def __str__(self) -> str:
        counts = [f"{self.labels.count(label)} {label}" for label in ("real", "doubtful", "noise", "empty")]
        return f"{len(self.labels)} classes: {', '.join(counts)}."


def class_evidence(model) -> ClassEvidence:
    """Evidence for each class of a private fit, from released numbers and simulation.

    Parameters
    ----------
    model : LatentClassAnalysis
        Fitted with noise, with at least two classes.
    """
    totals = model.noisy_totals_
    deviation = deviations(totals)
    largest = max(float(deviations(_fit_of_noise(model, seed)).max()) for seed in range(_N_FITS))
    labels = np.where(deviation >= _MARGIN * largest, "real", np.where(deviation > largest, "doubtful", "noise"))
    labels[totals.average["count"] <= _EMPTY * totals.noise_std["count"]] = "empty"
    return ClassEvidence(labels.tolist(), deviation, largest)


def deviations(totals) -> np.ndarray:
    """Root of the mean of z² of each class, shape (n_classes,)."""
    answers, noise_std = totals.average["cells"], totals.noise_std["cells"]
    count = np.maximum(totals.average["count"], 0.0)
    share = (count / max(count.sum(), 1e-300))[:, None]
    spread = noise_std * np.sqrt((1.0 - share) ** 2 + share**2 * (len(share) - 1))
    return np.sqrt(np.mean(((answers - share * answers.sum(axis=0)) / spread) ** 2, axis=1))


def _fit_of_noise(model, seed: int):
    """Noisy totals of a fit to generated records without classes, under as much noise for each record."""
    rng, plan, totals = np.random.default_rng(seed), model.privacy_.plan, model.noisy_totals_
    everybody = Categories(tuple(map(len, model.categories_)), prior=1e-9)
    answers, noise_std = totals.average["cells"].sum(axis=0), totals.noise_std["cells"]
    marginals = everybody.bins.counts(answers, noise_std * np.sqrt(model.n_components))
    answered = np.add.reduceat(answers, everybody.bins.starts[:-1]) / max(totals.average["count"].sum(), 1e-300)
    posterior = everybody.posterior(np.append(0.0, marginals)[None])
    codes = everybody.drawn(posterior, np.zeros(_MOST_RECORDS, np.int64), rng)
    codes[rng.random(codes.shape) >= answered] = -1
    statistics = model.expected_statistics(codes, model.last_posterior_)
    weight = float(plan.clip_weights(statistics.norms(model.blocks())).mean())
    n = max(totals.average["count"].sum() / max(weight, 1e-3), _FEWEST_RECORDS)
    drawn = int(min(n, _MOST_RECORDS))
    noise = float(np.clip(plan.noise_multiplier / plan.sampling_rate * drawn / n, *_NOISE))
    simulated = PrivacyPlan(
        noise_multiplier=noise, clip_norm=plan.clip_norm, sampling="full", n_steps=plan.n_steps, reproducible_noise=True
    )
    return fit_apart(copy_of(model, privacy=simulated, random_state=seed), codes[:drawn]).noisy_totals_

"""Posterior of a latent class model, and the posteriors that a fit computes from released totals.

===================  ====================================================================
symbol               name
===================  ====================================================================
w (K,)               ``weights``: shares of the classes
θ_kj                 ``answers[j]``: probabilities of the answers in column j, (K, L_j)
===================  ====================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from vips.expfam import Dirichlet
from vips.models._denoising import denoise_counts, posterior_mean

__all__ = ["ClassPosterior", "drawn_codes", "marginal_counts", "private_counts", "start_at", "starts_of"]

_LEAST = 1e-300  # of a probability, before its logarithm
_FARTHEST = 100.0  # of a start, whose exponential is taken


@dataclass(frozen=True, repr=False)
class ClassPosterior:
    """Independent Dirichlet posteriors of the shares of the classes, and of each class's answers in each column.

    Parameters
    ----------
    weights : Dirichlet
        ``concentration`` of shape (K,).
    concentration : ndarray of shape (K, n_levels)
        Of the answers, column after column.
    levels : tuple of int
        L_j, the number of levels of each column.
    start : ndarray of shape (K, n_levels)
        Public draws: how far the first tables of the classes are from the marginals, on the scale of logarithms.
    has_begun : bool
        Whether the classes have tables of their own.
    plug_in : bool
        Whether E-steps take the means, as EM and private fits do, instead of E log w and E log θ.
    """

    weights: Dirichlet
    concentration: np.ndarray
    levels: tuple[int, ...]
    start: np.ndarray
    has_begun: bool = True
    plug_in: bool = False
    _tables: list = field(default_factory=list, init=False, compare=False, repr=False)

    def __repr__(self) -> str:
        n_classes, n_levels = self.concentration.shape
        return f"<ClassPosterior of {n_classes} classes, {len(self.levels)} columns with {n_levels} levels>"

    @property
    def answers(self) -> list[Dirichlet]:
        """One for each column, ``concentration`` of shape (K, L_j)."""
        starts = starts_of(self.levels)
        return [Dirichlet(self.concentration[:, a:b]) for a, b in pairwise(starts)]

    @property
    def profiles(self) -> np.ndarray:
        """Mean probabilities of the answers, shape (K, n_levels); those of a column sum to 1."""
        return np.hstack([column.mean for column in self.answers])

    def tables(self) -> tuple[np.ndarray, np.ndarray]:
        """Logarithms for the E-step: of shape (K,) and (n_levels, K)."""
        if not self._tables:
            if self.plug_in:
                self._tables.append(self.log_means())
            else:
                logs = np.hstack([column.expected_log for column in self.answers])
                self._tables.append((self.weights.expected_log, np.ascontiguousarray(logs.T)))
        return self._tables[0]

    def log_means(self) -> tuple[np.ndarray, np.ndarray]:
        """Logarithms of the means of w, shape (K,), and of θ, shape (n_levels, K)."""
        weights, answers = (np.log(np.maximum(means, _LEAST)) for means in (self.weights.mean, self.profiles))
        return weights, np.ascontiguousarray(answers.T)

    def in_order(self, order: np.ndarray) -> ClassPosterior:
        """The same classes in another order."""
        weights = Dirichlet(self.weights.concentration[order])
        return ClassPosterior(
            weights, self.concentration[order], self.levels, self.start[order], self.has_begun, self.plug_in
        )

    def divergence(self, prior_weight: float, prior_answer: float) -> float:
        """KL from symmetric Dirichlet priors."""
        parts = [(self.weights, prior_weight), *((column, prior_answer) for column in self.answers)]
        return sum(float(np.sum(part.kl(Dirichlet(np.full(part.concentration.shape, prior))))) for part, prior in parts)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """For saving."""
        return {
            "weights": self.weights.concentration,
            "concentration": self.concentration,
            "levels": np.array(self.levels),
            "start": self.start,
            "has_begun": np.array(self.has_begun),
            "plug_in": np.array(self.plug_in),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> ClassPosterior:
        """Inverse of ``to_arrays``.

        Raises
        ------
        ValueError
            If the arrays do not fit together, or a number is not of a posterior.
        """
        for name, kinds in (("levels", "iu"), ("has_begun", "b"), ("plug_in", "b"), ("start", "f")):
            if arrays[name].dtype.kind not in kinds:
                raise ValueError(f"the posterior's {name!r} has another type")
        if not (np.abs(arrays["start"]) < _FARTHEST).all():
            raise ValueError("the posterior's start is none")
        levels = tuple(int(n) for n in arrays["levels"])
        if min(levels, default=0) < 1 or sum(levels) != arrays["concentration"].shape[1]:
            raise ValueError("the posterior's numbers of levels do not fit to its answers")
        Dirichlet(arrays["concentration"])  # checks it
        return cls(
            Dirichlet(arrays["weights"]), arrays["concentration"], levels, arrays["start"],
            bool(arrays["has_begun"]), bool(arrays["plug_in"]),
        )  # fmt: skip

    def check_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Whether arrays of a file are those of a posterior like this one.

        Raises
        ------
        ValueError
            If the columns have other numbers of levels, which may have the same sum.
        """
        if not np.array_equal(arrays.get("levels", self.levels), self.levels):
            raise ValueError("the posterior's 'levels' are not the model's")


def starts_of(levels: Sequence[int]) -> np.ndarray:
    """Where each column's levels begin, and where the last one's end."""
    return np.concatenate([[0], np.cumsum(levels)])


def drawn_codes(
    weights: np.ndarray, answers: np.ndarray, levels: Sequence[int], n: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Codes of ``n`` records of the model, shape (n, n_columns), and their classes, shape (n,).

    Parameters
    ----------
    weights : ndarray of shape (K,)
        Shares of the classes.
    answers : ndarray of shape (K, n_levels)
        Probabilities of the answers, or numbers in proportion to them.
    """
    classes = rng.choice(len(weights), n, p=weights)
    codes = np.empty((n, len(levels)), np.int64)
    for j, (a, b) in enumerate(pairwise(starts_of(levels))):
        below = np.cumsum(answers[:, a:b], axis=1)
        below = (below / below[:, -1:])[classes]
        codes[:, j] = np.minimum((rng.random(n)[:, None] >= below).sum(axis=1), b - a - 1)
    return codes, classes


def marginal_counts(counts: np.ndarray, noise_std: float, levels: Sequence[int]) -> np.ndarray:
    """Posterior means of noisy counts of the answers, ≥ 0, column by column; without noise the counts themselves."""
    if noise_std == 0.0:
        return np.maximum(counts, 0.0)
    starts, means = starts_of(levels), np.empty_like(counts)
    for a, b in pairwise(starts):
        uniform = max(counts[a:b].sum(), noise_std * np.sqrt(b - a)) / (b - a)
        means[a:b] = posterior_mean(counts[None, a:b], np.full((1, b - a), noise_std), np.full((1, b - a), uniform))[0]
    return means


def start_at(marginals: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Tables around the marginals: K rows in place of one, each with a K-th of the counts.

    Parameters
    ----------
    marginals : ndarray of shape (n_levels,)
        Counts, ≥ 0.
    start : ndarray of shape (K, n_levels)
    """
    return marginals * np.exp(start) / len(start)


def private_counts(
    count: np.ndarray, answers: np.ndarray, noise_std: Mapping[str, float]
) -> tuple[np.ndarray, np.ndarray]:
    """Posterior means of noisy counts of the classes, and of their answers (``vips/models/_denoising.py``)."""
    noise = np.full(answers.shape, noise_std["answers"])
    share = posterior_mean(count[None], np.full((1, len(count)), noise_std["count"]), _uniform(count, noise_std))
    return share[0], denoise_counts(answers, noise)[0]


def _uniform(count: np.ndarray, noise_std: Mapping[str, float]) -> np.ndarray:
    """Equal counts of all classes; at least what noise alone would give."""
    total = max(count.sum(), noise_std["count"] * np.sqrt(len(count)))
    return np.full((1, len(count)), total / len(count))

"""Posterior of a hidden Markov model of symbols, and what private fits compute from released totals.

===================  ====================================================================
symbol               name
===================  ====================================================================
π (K,)               ``start``: probabilities of the first state
A (K, K)             ``moves``: probabilities of the next state, a row for each state
B (K, n_symbols)     ``emissions``: probabilities of the symbols in each state
===================  ====================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from vips.expfam import Dirichlet
from vips.models._denoising import denoise_counts, posterior_mean

__all__ = ["ChainPosterior", "Contexts", "Tables", "private_totals"]

_LEAST = 1e-300  # of a probability, before its logarithm


@dataclass(frozen=True, repr=False)
class Tables:
    """What E-steps read: π and A, and B by symbol in proportion to each symbol's largest entry."""

    start: np.ndarray
    moves: np.ndarray
    by_symbol: np.ndarray
    log_largest: np.ndarray


@dataclass(frozen=True, repr=False)
class Contexts:
    """What the steps of the start know (``contexts.py``).

    Parameters
    ----------
    counts : ndarray of shape (n_symbols,)
        Denoised frequencies.
    classes : ndarray of shape (n_symbols, K)
    profile : ndarray of shape (K, n_symbols)
        Of the last step.
    """

    counts: np.ndarray
    classes: np.ndarray
    profile: np.ndarray


@dataclass(frozen=True, repr=False)
class ChainPosterior:
    """Independent Dirichlet posteriors of π, and of the rows of A and B.

    Parameters
    ----------
    start, moves, emissions : Dirichlet
        ``concentration`` of shape (K,), (K, K) and (K, n_symbols); 0 where a move is not allowed.
    noise : ndarray of shape (K, n_symbols)
        Public draws: how far the first emissions are from the frequencies of the symbols, on the scale of logarithms.
    step : int
        Steps that this posterior has seen.
    plug_in : bool
        Whether E-steps take the means, as EM and private fits do, instead of exp E log.
    contexts : Contexts or None
        In the steps of the start.
    """

    start: Dirichlet
    moves: Dirichlet
    emissions: Dirichlet
    noise: np.ndarray
    step: int = 0
    plug_in: bool = False
    contexts: Contexts | None = None
    _tables: list = field(default_factory=list, init=False, compare=False, repr=False)

    def __repr__(self) -> str:
        n_states, n_symbols = self.noise.shape
        return f"<ChainPosterior of {n_states} states, {n_symbols} symbols>"

    def tables(self) -> Tables:
        """For the E-step."""
        if not self._tables:
            parts = (self.start, self.moves, self.emissions)
            start, moves, emissions = (part.mean if self.plug_in else np.exp(part.expected_log) for part in parts)
            largest = np.maximum(emissions.max(axis=0), _LEAST)
            by_symbol = np.ascontiguousarray((emissions / largest).T)
            self._tables.append(Tables(start, np.ascontiguousarray(moves), by_symbol, np.log(largest)))
        return self._tables[0]

    def in_order(self, order: np.ndarray) -> ChainPosterior:
        """The same states in another order."""
        start, moves, emissions = (part.concentration for part in (self.start, self.moves, self.emissions))
        return ChainPosterior(
            Dirichlet(start[order]), Dirichlet(moves[np.ix_(order, order)]), Dirichlet(emissions[order]),
            self.noise[order], self.step, self.plug_in,
        )  # fmt: skip

    def divergence(self, priors: tuple[float, float, float]) -> float:
        """KL from symmetric Dirichlet priors."""
        parts = zip((self.start, self.moves, self.emissions), priors, strict=True)
        return sum(float(np.sum(part.kl(Dirichlet(np.full(part.concentration.shape, prior))))) for part, prior in parts)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """For saving: arrays of the same shapes in every step, zeros in place of contexts that are not there."""
        n_states, n_symbols = self.noise.shape
        shapes = ((n_symbols,), (n_symbols, n_states), (n_states, n_symbols))
        contexts = self.contexts or Contexts(*map(np.zeros, shapes))
        return {
            "start": self.start.concentration,
            "moves": self.moves.concentration,
            "emissions": self.emissions.concentration,
            "noise": self.noise,
            "step": np.array(self.step),
            "plug_in": np.array(self.plug_in),
            **{f"contexts_{name}": value for name, value in vars(contexts).items()},
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> ChainPosterior:
        """Inverse of ``to_arrays``.

        Raises
        ------
        ValueError
            If the arrays do not fit together, or a concentration is not positive and finite.
        """
        start, moves, emissions = (Dirichlet(arrays[name]) for name in ("start", "moves", "emissions"))
        n_states = len(arrays["start"])
        if arrays["moves"].shape != (n_states, n_states) or len(arrays["emissions"]) != n_states:
            raise ValueError("the posterior's states do not fit together")
        if arrays["noise"].shape != arrays["emissions"].shape:
            raise ValueError("the posterior's start does not fit to its emissions")
        contexts = Contexts(*(arrays[f"contexts_{name}"] for name in ("counts", "classes", "profile")))
        if contexts.classes.T.shape != contexts.profile.shape or contexts.profile.shape != arrays["noise"].shape:
            raise ValueError("the posterior's classes of symbols do not fit to its emissions")
        if not contexts.classes.any():
            contexts = None
        return cls(start, moves, emissions, arrays["noise"], int(arrays["step"]), bool(arrays["plug_in"]), contexts)


def private_totals(
    average: Mapping[str, np.ndarray], noise_std: Mapping[str, float]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Posterior means of noisy counts of first states, of moves and of symbols (``vips/models/_denoising.py``), all ≥ 0."""
    start, moves, emissions = average["start"], average["moves"], average["emissions"]
    start = posterior_mean(
        start[None], np.full((1, len(start)), noise_std["start"]), _even(start[None], noise_std["start"])
    )
    moves = denoise_counts(moves, np.full(moves.shape, noise_std["moves"]))[0]
    return start[0], moves, denoise_counts(emissions, np.full(emissions.shape, noise_std["emissions"]))[0]


def _even(counts: np.ndarray, noise_std: float) -> np.ndarray:
    """The total spread evenly; at least what noise alone would give."""
    return np.full(counts.shape, max(counts.sum(), noise_std * np.sqrt(counts.size)) / counts.size)

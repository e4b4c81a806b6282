"""Posteriors of hidden Markov models, and what private fits compute from released totals.

===================  =========================================================================
symbol               name
===================  =========================================================================
π (K,)               ``start``: probabilities of the first state
A (K, K)             ``moves``: probabilities of the next state, a row for each state
B (K, n_symbols)     ``emissions``: probabilities of the symbols in each state
μ, τ, λ, θ           ``columns``: of columns of numbers, counts and categories in each state
===================  =========================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from scipy.optimize import quadratic_assignment

from vips.expfam import Dirichlet, Draws
from vips.models._denoising import denoise_counts, posterior_mean
from vips.models.components.columns import Posteriors
from vips.models.components.component import Frame

__all__ = [
    "FORBIDDEN", "ChainPosterior", "ColumnChainPosterior", "Contexts", "SymbolPosterior", "SymbolTables", "chain_of",
    "order_of_mask", "private_chain", "private_counts",
]  # fmt: skip

FORBIDDEN = 1e-200  # concentration of a move that the public mask forbids
_LEAST = 1e-300  # of a probability, before its logarithm
_LEAST_ALLOWED = 1e-90  # of a probability in an E-step: products of a few of them are numbers still


@dataclass(frozen=True, repr=False)
class ChainPosterior:
    """Independent Dirichlet posteriors of π, and of the rows of A: what all hidden Markov models share.

    Parameters
    ----------
    start, moves : Dirichlet
        ``concentration`` of shape (K,) and (K, K); ``FORBIDDEN`` where a mask forbids a move.
    plug_in : bool
        Whether E-steps take the means, as EM and private fits do, instead of exp E log.
    draws : dict of str to Draws
        Of "shares", "start", "moves" and what is seen, given that totals are noisy: what intervals are read from; empty where
        there are none. Not saved.
    """

    start: Dirichlet
    moves: Dirichlet
    plug_in: bool
    draws: Mapping[str, Draws] = field(default_factory=dict, kw_only=True)
    tables = None  # what else E-steps take; computed once where there is something

    @cached_property
    def chain(self) -> tuple[np.ndarray, np.ndarray]:
        """π and A for the E-step; rows need not add up to 1."""
        return self._for_e_step(self.start), np.ascontiguousarray(self._for_e_step(self.moves))

    def means_of_chain(self) -> tuple[np.ndarray, np.ndarray]:
        """Posterior means of π and A."""
        means = (np.where(part.concentration > FORBIDDEN, part.mean, 0.0) for part in (self.start, self.moves))
        return tuple(probabilities / probabilities.sum(axis=-1, keepdims=True) for probabilities in means)

    def _chain_in_order(self, order: np.ndarray) -> dict:
        """Fields of the same states in another order."""
        draws = {name: of.taken(order) for name, of in self.draws.items()}
        return {
            "start": self.start.taken(order),
            "moves": Dirichlet(self.moves.concentration[np.ix_(order, order)]),
            "draws": {name: of.taken(order, 1) if name == "moves" else of for name, of in draws.items()},
        }

    def divergence_of_chain(self, start: np.ndarray, moves: np.ndarray) -> float:
        """KL from Dirichlet priors with these concentrations."""
        return float(self.start.kl(Dirichlet(start)) + np.sum(self.moves.kl(Dirichlet(moves))))

    def _for_e_step(self, part: Dirichlet) -> np.ndarray:
        values = part.mean if self.plug_in else np.exp(part.expected_log)
        return np.where(part.concentration > FORBIDDEN, np.maximum(values, _LEAST_ALLOWED), 0.0)

    def _arrays_of_chain(self) -> dict[str, np.ndarray]:
        return {
            "start": self.start.concentration,
            "moves": self.moves.concentration,
            "plug_in": np.array(self.plug_in),
        }


def chain_of(arrays: Mapping[str, np.ndarray]) -> dict:
    """Arguments of a :class:`ChainPosterior`, from its arrays.

    Raises
    ------
    ValueError
        If they do not fit together, or a concentration is not positive and finite.
    """
    start, moves = (Dirichlet(arrays[name]) for name in ("start", "moves"))
    n_states = len(arrays["start"])
    if arrays["start"].shape != (n_states,) or arrays["moves"].shape != (n_states, n_states):
        raise ValueError("the posterior's states do not fit together")
    if any((part.concentration.max(axis=-1) <= FORBIDDEN).any() for part in (start, moves)):
        raise ValueError("no move from a state of the posterior is allowed")
    return {"start": start, "moves": moves, "plug_in": bool(arrays["plug_in"])}


@dataclass(frozen=True, repr=False)
class ColumnChainPosterior(ChainPosterior):
    """Posterior of a hidden Markov model whose steps are rows of declared columns.

    Parameters
    ----------
    columns : Posteriors
        Of the columns of each kind.
    frame : Frame
        Public coordinates of the columns that have some, kind by kind.
    marginals : ndarray of shape (n_bins,)
        Denoised counts in the bins of all columns; 0 before they are released.
    seed : ndarray of uint32
        Public, of the restarts in the computation of the first states.
    """

    columns: Posteriors
    frame: Frame
    marginals: np.ndarray
    seed: np.ndarray

    def __repr__(self) -> str:
        return f"<ColumnChainPosterior of {len(self.start.mean)} states, columns of {', '.join(self.columns)}>"

    def in_order(self, order: np.ndarray) -> ColumnChainPosterior:
        """The same states in another order."""
        return replace(self, **self._chain_in_order(order), columns=self.columns.taken(order))

    def to_arrays(self) -> dict[str, np.ndarray]:
        """For saving."""
        others = {"marginals": self.marginals, "seed": self.seed} | vars(self.frame)
        return self._arrays_of_chain() | self.columns.to_arrays() | others

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> ColumnChainPosterior:
        """Inverse of ``to_arrays``.

        Raises
        ------
        ValueError
            If the arrays do not fit together, or a number is not of a posterior.
        """
        columns, frame = Posteriors.from_arrays(arrays), Frame(arrays["centre"], arrays["scale"])
        frame.check()
        if not columns or any(len(part.mean) != len(arrays["start"]) for part in columns.values()):
            raise ValueError("the posterior's columns do not fit to its states")
        marginals = np.asarray(arrays["marginals"], np.float64)
        if not (marginals.ndim == 1 and np.isfinite(marginals).all() and (marginals >= 0.0).all()):
            raise ValueError("the posterior's marginals are no counts")
        if arrays["seed"].dtype != np.uint32:
            raise ValueError("the posterior's seed is none")
        return cls(**chain_of(arrays), columns=columns, frame=frame, marginals=marginals, seed=arrays["seed"])


@dataclass(frozen=True, repr=False)
class SymbolTables:
    """B for the E-step, by symbol, in proportion to each symbol's largest entry; and the logarithms of these entries."""

    by_symbol: np.ndarray
    log_largest: np.ndarray


@dataclass(frozen=True, repr=False)
class Contexts:
    """What the steps of the start know (``start.py``).

    Parameters
    ----------
    counts : ndarray of shape (n_symbols,)
        Denoised frequencies.
    classes : ndarray of shape (n_symbols, K)
    profile : ndarray of shape (K, n_symbols)
        Of the last step; zeros before the first one.
    side : int
        Where the next step looks: -1 at the symbol before, 1 at the one behind.
    """

    counts: np.ndarray
    classes: np.ndarray
    profile: np.ndarray
    side: int = -1


@dataclass(frozen=True, repr=False)
class SymbolPosterior(ChainPosterior):
    """Posterior of a hidden Markov model of symbols.

    Parameters
    ----------
    emissions : Dirichlet
        Of the rows of B; ``concentration`` of shape (K, n_symbols).
    noise : ndarray of shape (K, n_symbols)
        Public draws: how far the first emissions are from the frequencies of the symbols, on the scale of logarithms.
    contexts : Contexts or None
        In the steps of the start.
    """

    emissions: Dirichlet
    noise: np.ndarray
    contexts: Contexts | None = None

    def __repr__(self) -> str:
        n_states, n_symbols = self.noise.shape
        return f"<SymbolPosterior of {n_states} states, {n_symbols} symbols>"

    @cached_property
    def tables(self) -> SymbolTables:
        """For the E-step."""
        emissions = self.emissions.mean if self.plug_in else np.exp(self.emissions.expected_log)
        largest = np.maximum(emissions.max(axis=0), _LEAST)
        by_symbol = np.maximum(emissions / largest, _LEAST_ALLOWED).T
        return SymbolTables(np.ascontiguousarray(by_symbol), np.log(largest))

    def in_order(self, order: np.ndarray) -> SymbolPosterior:
        """The same states in another order."""
        emissions = self.emissions.taken(order)
        return replace(self, **self._chain_in_order(order), emissions=emissions, noise=self.noise[order], contexts=None)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """For saving: arrays of the same shapes in every step, zeros in place of contexts that are not there."""
        n_states, n_symbols = self.noise.shape
        shapes = ((n_symbols,), (n_symbols, n_states), (n_states, n_symbols))
        contexts = self.contexts or Contexts(*map(np.zeros, shapes))
        arrays = {"emissions": self.emissions.concentration, "noise": self.noise}
        arrays |= {f"contexts_{name}": np.array(value) for name, value in vars(contexts).items()}
        return self._arrays_of_chain() | arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> SymbolPosterior:
        """Inverse of ``to_arrays``.

        Raises
        ------
        ValueError
            If the arrays do not fit together, or a concentration is not positive and finite.
        """
        chain, emissions = chain_of(arrays), Dirichlet(arrays["emissions"])
        if emissions.concentration.ndim != 2 or len(emissions.concentration) != len(arrays["start"]):
            raise ValueError("the posterior's states do not fit together")
        if arrays["noise"].shape != arrays["emissions"].shape:
            raise ValueError("the posterior's start does not fit to its emissions")
        counts, classes, profile, side = (
            arrays[f"contexts_{name}"] for name in ("counts", "classes", "profile", "side")
        )
        contexts = Contexts(counts, classes, profile, int(side))
        if contexts.classes.T.shape != contexts.profile.shape or contexts.profile.shape != arrays["noise"].shape:
            raise ValueError("the posterior's classes of symbols do not fit to its emissions")
        contexts = contexts if contexts.classes.any() else None
        return cls(**chain, emissions=emissions, noise=arrays["noise"], contexts=contexts)


def order_of_mask(start: np.ndarray, moves: np.ndarray, allowed: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """The order of states in which most of the counts are those of first states and moves that the masks allow.

    Parameters
    ----------
    start, moves : ndarray of shape (K,), (K, K)
        Counts, ≥ 0.
    allowed : tuple of ndarray of bool, shape (K,), (K, K)

    Returns
    -------
    order : ndarray of shape (K,)
        The state that takes each place.
    """
    n = len(start) + 1  # a node before all sequences, which stays where it is
    masks, counts = np.zeros((n, n)), np.zeros((n, n))
    masks[0, 1:], masks[1:, 1:] = allowed
    counts[0, 1:], counts[1:, 1:] = start, moves
    options = {"maximize": True, "partial_match": np.zeros((1, 2), int), "rng": np.random.default_rng(0)}
    return quadratic_assignment(masks, counts, options=options).col_ind[1:] - 1


def private_chain(
    start: np.ndarray, moves: np.ndarray, noise_std: Mapping[str, float | np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Posterior means of noisy counts of first states and of moves (``vips/models/_denoising.py``), all ≥ 0."""
    std = np.broadcast_to(noise_std["start"], start.shape)[None]
    even = max(start.sum(), np.sqrt(np.square(std).sum())) / len(start)  # at least what noise alone would give
    first = posterior_mean(start[None], std.copy(), np.full(std.shape, even))[0]
    return first, denoise_counts(moves, np.broadcast_to(noise_std["moves"], moves.shape).copy())[0]


def private_counts(counts: np.ndarray, noise_std: float) -> np.ndarray:
    """Posterior means of a table of noisy counts, all ≥ 0; the counts themselves without noise."""
    if noise_std == 0.0:
        return np.maximum(counts, 0.0)
    return denoise_counts(counts, np.full(counts.shape, noise_std))[0]

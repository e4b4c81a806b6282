"""The privacy plan of a stream: batches that arrive one after the other, with noise that is correlated over them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from vips._support.validation import check_choice, check_delta, check_integer, check_number
from vips.core.correlated import BinaryTree, BufferedToeplitz, Independent, Strategy, fitted_toeplitz
from vips.core.ledger import open_ledger
from vips.core.mechanism.lattice import Lattice
from vips.core.plan import PrivacyPlan

if TYPE_CHECKING:
    from vips.core.sums.blocks import Block

__all__ = ["StreamPlan", "StreamState"]

_MECHANISMS = ("toeplitz", "tree", "independent")


@dataclass(frozen=True, kw_only=True)
class _PlanOfDraws(PrivacyPlan):
    """Clip, lattice and noise of one batch. What is carried over from earlier noise is rounded as well.

    Parameters
    ----------
    roundings : float
        By how much that moves C s + z, in units of what rounding one row does.
    begun_with : Lattice or None
        That of a stream which has begun.
    """

    roundings: float = 0.0
    begun_with: Lattice | None = None

    def lattice(self, blocks: Mapping[str, Block]) -> Lattice | None:
        if not self.rounds_records or self.begun_with is not None:
            return self.begun_with
        rows = (self.max_rows_per_group or 1) + self.roundings
        try:
            return Lattice.for_blocks(blocks, self.noise_multiplier, self._clip, rows)
        except ValueError as error:
            n = sum(math.prod(block.shape) for block in blocks.values())
            raise ValueError(
                f'noise="discrete" cannot hold {n} numbers over {self.n_steps} batches at this epsilon: its lattice would be '
                'too fine. Plan fewer batches, or write mechanism="toeplitz", or "tree" with decay=1, or noise="gaussian".'
            ) from error


@dataclass(frozen=True, kw_only=True)
class StreamPlan(open_ledger.KeepsItsScope):
    """What a model that learns from a stream may do to the records, and what that costs.

    After each of at most ``n_batches`` batches (any sizes, also none) the model releases the total of all batches so far, with
    noise, and a posterior computed from it. All releases together are one Gaussian mechanism. Nothing is sampled, and no
    record is kept.

    Parameters
    ----------
    epsilon, delta : float
        Of all batches together. ``epsilon=inf`` adds no noise and has no guarantee.
    n_batches : int
        Public. The stream ends after so many.
    participation : int
        Number of batches in which one record, or one person, may be, whichever they are. A person's rows in one batch are one
        share, if ``groups`` are given; the model then counts batches by person and leaves out later ones. Without ``groups``
        it is a promise of the caller.
    decay : float
        γ in (0, 1]: weight of a batch against the one after it. 1 weighs all alike; 0.99 forgets about as if 100 batches
        counted.
    clip_norm : float or None
        As in :class:`PrivacyPlan`.
    mechanism : {"toeplitz", "tree", "independent"}
        How noise is correlated: buffered Toeplitz factorisation, which is best; the binary tree of the textbooks; not at all.
    noise : {"gaussian", "discrete"}
        As in :class:`PrivacyPlan`: "discrete" rounds records and noise to a public lattice, and adds them exactly.
    max_rows_per_group : int or None
        Rows of a person in a batch beyond the first so many are left out. ``noise="discrete"`` needs it with ``groups``.

    Guarantees
    ----------
    For finite ``epsilon`` the sequence of all releases is (ε, δ)-differentially private: for adding or removing one record (one
    person, with ``groups``) that is in at most ``participation`` batches, whatever batches and sizes are, also if batches
    depend on earlier releases.

    Examples
    --------
    >>> plan = StreamPlan(epsilon=1.0, delta=1e-6, n_batches=365)
    >>> alone = StreamPlan(epsilon=1.0, delta=1e-6, n_batches=365, mechanism="independent")
    >>> bool(plan.noise_std(365) < 0.25 * alone.noise_std(365))
    True
    """

    epsilon: float
    delta: float
    n_batches: int
    participation: int = 1
    decay: float = 1.0
    clip_norm: float | None = None
    mechanism: str = "toeplitz"
    noise: str = "gaussian"
    max_rows_per_group: int | None = None

    sent_from: open_ledger.SentFrom = field(default=None, compare=False, repr=False)

    reproducible_noise = False  # noise comes from the operating system

    def __post_init__(self) -> None:
        if self.epsilon != math.inf:
            check_number("epsilon", self.epsilon, 0.0, math.inf, "a positive number, or inf", open_low=True)
        check_delta(self.delta)
        check_integer("n_batches", self.n_batches)
        check_integer("participation", self.participation)
        check_number("decay", self.decay, 0.0, 1.0, "in (0, 1]", open_low=True)
        check_choice("mechanism", self.mechanism, _MECHANISMS)
        check_choice("noise", self.noise, ("gaussian", "discrete"))
        if self.rounds_records and not self.is_private:
            raise ValueError('noise="discrete" needs a finite `epsilon`: without noise nothing is rounded.')
        if self.max_rows_per_group is not None:
            check_integer("max_rows_per_group", self.max_rows_per_group)
        if self.clip_norm is not None and self.clip_norm != math.inf:
            check_number(
                "clip_norm", self.clip_norm, 1e-12, 1e12, "between 1e-12 and 1e12, or None for the model's default"
            )
        if self.is_private and self.clip_norm == math.inf:
            raise ValueError("Noise needs a finite `clip_norm`: an unclipped sum has no sensitivity to scale it to.")
        for name in ("epsilon", "delta", "decay", "clip_norm"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, float(getattr(self, name)))
        try:
            _ = self.whole
        except ValueError as error:
            raise ValueError(
                f"No noise gives epsilon={self.epsilon!r} at delta={self.delta!r}: write an epsilon between 0.01 and 1e4, or "
                "epsilon=inf for a stream without noise."
            ) from error

    @property
    def is_private(self) -> bool:
        """Whether noise is added at all."""
        return self.epsilon != math.inf

    @property
    def rounds_records(self) -> bool:
        """Whether each clipped record is rounded before it is summed."""
        return self.noise == "discrete"

    @cached_property
    def strategy(self) -> Strategy:
        """The factorisation of prefix sums; a public function of the plan."""
        if self.mechanism == "toeplitz":
            return fitted_toeplitz(self.n_batches, self.decay, self.participation)
        return {"tree": BinaryTree, "independent": Independent}[self.mechanism](self.n_batches, self.decay)

    @cached_property
    def whole(self) -> PrivacyPlan:
        """All releases as one step of full data: what ledger, report and accountants see."""
        if not self.is_private:
            clip = math.inf if self.clip_norm is None else self.clip_norm
            plain = PrivacyPlan(noise_multiplier=0.0, sampling="full", n_steps=1, clip_norm=clip)
            return replace(plain, max_rows_per_group=self.max_rows_per_group)
        return PrivacyPlan.from_epsilon(
            epsilon=self.epsilon, delta=self.delta, sampling="full", n_steps=1, clip_norm=self.clip_norm, noise=self.noise,
            max_rows_per_group=self.max_rows_per_group,
        )  # fmt: skip

    @cached_property
    def of_draws(self) -> Any:
        """Internal plan for one batch's clip and noise, of ``n_batches`` draws. Its ε has no meaning."""
        if not self.is_private:
            return replace(self.whole, n_steps=self.n_batches)
        fields_of_whole = {field.name: getattr(self.whole, field.name) for field in fields(self.whole)}
        sigma = self.whole.noise_multiplier * self.strategy.sensitivity(self.participation)
        changed = {"noise_multiplier": sigma, "n_steps": self.n_batches}
        return _PlanOfDraws(**fields_of_whole | changed, roundings=2.0 * self.strategy.rounding())

    def searched(self, blocks: Mapping[str, Block]) -> dict:
        """Noise, factorisation and lattice, which searches found, as JSON: a stream keeps them for life."""
        strategy, lattice = self.strategy, self.of_draws.lattice(blocks)
        fitted = strategy if isinstance(strategy, BufferedToeplitz) else None
        return {
            "noise_multiplier": self.whole.noise_multiplier,
            "of_draws": self.of_draws.noise_multiplier,
            "strategy": {"theta": fitted.theta.tolist(), "omega": fitted.omega.tolist()} if fitted else {},
            "lattice": None if lattice is None else [lattice.unit, lattice.noise_steps],
        }

    def with_searched(self, searched: dict) -> StreamPlan:
        """The plan with what :meth:`searched` said when its stream began.

        Raises
        ------
        ValueError, KeyError, TypeError
            If that is of another plan.
        """
        plan = replace(self)
        kept = plan.__dict__  # the cached properties
        kept["whole"] = replace(plan.whole, noise_multiplier=searched["noise_multiplier"])
        if self.mechanism == "toeplitz":
            kept["strategy"] = BufferedToeplitz(self.n_batches, self.decay, **searched["strategy"])
        if self.is_private and not plan.whole.epsilon(self.delta) <= self.epsilon * (1.0 + 1e-9):
            raise ValueError("the noise is less than the plan's")
        if not math.isclose(plan.of_draws.noise_multiplier, searched["of_draws"], rel_tol=1e-9):
            raise ValueError("the noise is not that of its strategy")
        if (searched["lattice"] is not None) != self.rounds_records:
            raise ValueError("the lattice is of another kind of noise")
        if self.rounds_records:
            lattice = Lattice(*searched["lattice"])
            if not math.isclose(lattice.unit * lattice.noise_steps, plan.of_draws.noise_std(), rel_tol=1e-9):
                raise ValueError("the lattice is not that of the noise")
            kept["of_draws"] = replace(plan.of_draws, begun_with=lattice)
        return plan

    def check_lattice(self, blocks: Mapping[str, Block]) -> None:
        """Raise ValueError if the lattice that a stream began with is too coarse for the rounding that its ε allows."""
        kept = self.of_draws.lattice(blocks)
        if kept is not None and kept.noise_steps < replace(self.of_draws, begun_with=None).lattice(blocks).noise_steps:
            raise ValueError("the lattice is too coarse")

    def weight(self, t: int) -> float:
        """1 + γ + … + γ^(t-1): of all batches so far, in units of the last one's."""
        return float(t) if self.decay == 1.0 else (1.0 - self.decay**t) / (1.0 - self.decay)

    @cached_property
    def _deviations(self) -> np.ndarray:
        return self.strategy.deviations()

    def noise_std(self, t: int) -> float:
        """Standard deviation of the noise in a coordinate of the total after batch t, in units of the clip norm."""
        return self.of_draws.noise_multiplier * float(self._deviations[t - 1]) if self.is_private else 0.0


@dataclass(frozen=True)
class StreamState:
    """Where a stream is; public.

    Attributes
    ----------
    name : str
    t : int
        Batches so far.
    run : str or None
        Of the ledger.
    """

    name: str
    t: int
    run: str | None

"""The privacy plan: public numbers, and the four operations that use them.

One object draws the sample, gives the clip weights, adds the noise and names its own event, so that sampling, noise
and accounting cannot disagree. Fields are public and may be printed; data and generators are arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vips._support.validation import check_delta, check_integer, check_number
from vips.core import accounting
from vips.core.ledger import open_ledger
from vips.core.mechanism import noise
from vips.core.mechanism.clipping import clip_weights
from vips.core.mechanism.lattice import SENSITIVITY_FACTOR, Lattice
from vips.core.mechanism.release import IndependentNoise, Mechanism
from vips.core.mechanism.sampling import PoissonCoins
from vips.core.plan_phases import Phase, scaled, weight_of_step

if TYPE_CHECKING:
    from vips.core.mechanism.noise import Randomness
    from vips.core.sums.blocks import Block

__all__ = ["PrivacyPlan"]

_FULL_STEPS = 20  # of a plan without further settings
_LEAST_NOISE = 1e-12
_NUMBERS = {
    float: ("noise_multiplier", "sampling_rate", "clip_norm", "max_weight"),
    int: ("n_steps", "max_rows_per_group"),
}


@dataclass(frozen=True, kw_only=True)
class PrivacyPlan(open_ledger.KeepsItsScope):
    """What a private fit may do to the data, and what that costs.

    In each of ``n_steps`` steps every record takes part with probability ``sampling_rate``, independently; each
    record's statistics are scaled to L2 norm at most ``clip_norm`` over all blocks jointly; their sum is released with
    Gaussian noise of standard deviation ``noise_multiplier × clip_norm`` per coordinate.

    Parameters
    ----------
    noise_multiplier : float
        σ ≥ 0: noise standard deviation of the (scaled) sum ÷ ``clip_norm``, under every relation. 0 means no noise and no
        guarantee.
    sampling_rate : float
        q in (0, 1]. Not needed where ``sampling`` determines it.
    n_steps : int
        T ≥ 1. Steps are never stopped early or repeated because of the data.
    clip_norm : float or None
        C > 0. None takes the model's ``default_clip()``, a public constant of the model's arguments.
    sampling : {"poisson", "full"}
        "full" takes all records in every step.
    relation : {"add_or_remove", "replace_one"}
        Neighbouring data sets differ by one record present or absent (the sum moves by C), or by one record's values
        (the sum moves by 2C, and the number of records is public).
    noise : {"gaussian", "discrete"}
        "gaussian": normals in double precision, fast, not hardened against floating-point attacks. "discrete": every
        clipped record is rounded to a public lattice, sums are exact, and the noise is a Gaussian rounded to the lattice,
        sampled exactly; see docs/guarantee.md.
    reproducible_noise : bool
        True derives sampling and noise from the model's ``random_state``, for tests and for experiments on public
        data. Such a fit carries no guarantee, and its report says so.
    report_delta : float or None
        δ at which reports quote ε; ``from_epsilon`` sets it. There is no default.
    max_rows_per_group : int or None
        With ``fit(..., groups=ids)``: rows of a person beyond the first so many are left out. Public. Rows then weigh alike,
        because the default clip norm grows with their number; without a bound persons do (docs/what_epsilon_bounds.md).
    max_weight : float or None
        W, with ``fit(..., sample_weight=w)``: a record's share in the sum is clipped, then multiplied by min(w, W)/W. Public. A
        private fit with weights needs it.
    phases : tuple of Phase
        How steps of full batches share the noise: one of weight w has ``noise_multiplier`` ÷ √w. Weights are scaled to the sum
        ``n_steps`` over all steps, so that ε is that of equal weights. The model states them, and ``fit`` enters them into the
        plan of its report; empty means one phase.
    sent_from : Scope, "outside" or None
        Set when a plan is pickled, then never changed; do not pass it. It names the scope that was open there: its
        ledger pays for fits with this plan wherever it is unpickled. Ignored by ``==``, and not saved with a model.

    Guarantees
    ----------
    With ``noise_multiplier > 0`` and ``reproducible_noise=False``, the sequence of all noisy totals, and whatever is
    computed from them, is (``epsilon(delta)``, ``delta``)-differentially private under ``relation``, for every δ. A subclass
    may do anything, so it has no guarantee, and ledgers refuse it.

    Examples
    --------
    >>> plan = PrivacyPlan(noise_multiplier=1.24, sampling_rate=0.05, n_steps=20)
    >>> round(plan.epsilon(1e-4), 3), round(plan.epsilon(1e-4, accountant="moments", orders="paper"), 3)
    (0.932, 2.441)
    """

    noise_multiplier: float
    sampling_rate: float = None  # type: ignore[assignment]  # or set by `_check_sampling`
    n_steps: int
    clip_norm: float | None = None
    sampling: str = "poisson"
    relation: str = "add_or_remove"
    noise: str = "gaussian"
    reproducible_noise: bool = False
    report_delta: float | None = None
    max_rows_per_group: int | None = None
    max_weight: float | None = None
    phases: tuple[Phase, ...] = ()
    sent_from: open_ledger.SentFrom = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        # Moderate ranges: a product of two of these neither vanishes nor overflows.
        if self.noise_multiplier != 0:
            check_number("noise_multiplier", self.noise_multiplier, _LEAST_NOISE, 1e12, "0, or between 1e-12 and 1e12")
        self._check_sampling()
        check_number("sampling_rate", self.sampling_rate, 1e-12, 1.0, "in (0, 1], and not below 1e-12")
        check_integer("n_steps", self.n_steps)
        if self.max_rows_per_group is not None:
            check_integer("max_rows_per_group", self.max_rows_per_group)
        if self.max_weight is not None and (self.is_private or self.max_weight != math.inf):
            check_number("max_weight", self.max_weight, 1e-12, 1e12, "a number between 1e-12 and 1e12")
        if self.clip_norm is not None and self.clip_norm != math.inf:
            check_number("clip_norm", self.clip_norm, 1e-12, 1e12,
                          "between 1e-12 and 1e12, inf without noise, or None for the model's default")  # fmt: skip
        if not isinstance(self.reproducible_noise, bool | np.bool_):
            raise ValueError(f"`reproducible_noise` must be True or False, got {self.reproducible_noise!r}.")
        for kind, names in _NUMBERS.items():
            for name in names:
                if getattr(self, name) is not None:  # products of float16 would underflow
                    object.__setattr__(self, name, kind(getattr(self, name)))
        if self.relation not in ("add_or_remove", "replace_one"):
            raise ValueError(f'`relation` must be "add_or_remove" or "replace_one", got {self.relation!r}.')
        if self.noise not in ("gaussian", "discrete"):
            raise ValueError(f'`noise` must be "gaussian" or "discrete", got {self.noise!r}.')
        if self.noise == "discrete" and not 1e-3 <= self.noise_multiplier <= 1e6:
            raise ValueError(
                f'noise="discrete" needs a `noise_multiplier` between 1e-3 and 1e6, got {self.noise_multiplier!r}.'
            )
        if self.noise_multiplier > 0 and self.clip_norm == math.inf:
            raise ValueError("Noise needs a finite `clip_norm`: an unclipped sum has no sensitivity to scale it to.")
        if self.report_delta is not None:
            check_delta(self.report_delta)
        object.__setattr__(self, "phases", scaled(self.phases, self.n_steps, self.sampling_rate))
        for weight in self._extreme_weights():
            self._with_weight(weight)
        if not (self.sent_from in (None, open_ledger.OUTSIDE) or isinstance(self.sent_from, open_ledger.Scope)):
            raise ValueError("`sent_from` is set when a plan is pickled: leave it out.")

    def _check_sampling(self) -> None:
        """Check the arguments of sampling, and set the rate where they determine it."""
        if self.sampling not in ("poisson", "full"):
            raise ValueError(
                f'`sampling` must be "poisson" or "full", got {self.sampling!r}: no accountant here covers batches that are '
                "shuffled or of a fixed size."
            )
        if self.sampling == "full":
            if self.sampling_rate not in (None, 1.0):
                raise ValueError('sampling="full" takes every record: leave `sampling_rate` out.')
            object.__setattr__(self, "sampling_rate", 1.0)

    @classmethod
    def from_epsilon(
        cls, *, epsilon: float, delta: float, n_steps: int | None = None, noise_multiplier: float | None = None,
        accountant: str = "pld", **settings: Any,
    ) -> PrivacyPlan:  # fmt: skip
        """The plan that uses as much of (ε, δ) as possible and never exceeds it.

        It keeps the whole δ for the statement of one fit. A ledger of the same (ε, δ) has room for 0.3 to 2 % less (samples:
        1 to 5 %, and far less where single steps dominate the loss, docs/accounting.md), because what is chosen later must fit
        in, too; :class:`PrivacyBudget` fits exactly.

        With ``n_steps``, it has the least noise; with ``noise_multiplier`` instead, the most steps. Without either, and without
        a sampling rate, it has 20 steps of full batches, which cost no ε. ``epsilon`` and ``delta`` have no defaults. A common
        choice of δ is well below one over the number of records; choose it from public knowledge, not by counting.

        Parameters
        ----------
        accountant : str
            See :meth:`epsilon`.
        **settings
            Further fields: ``sampling_rate``, ``sampling``, ``clip_norm``, ``relation``, ``noise``, ...

        Raises
        ------
        ValueError
            If ε ≤ 0, δ outside (0, 1), both or neither of ``n_steps`` and ``noise_multiplier`` are given (neither with a
            sampling rate), another argument is out of range, or not even one step is within (ε, δ).

        Examples
        --------
        >>> PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-5, sampling_rate=0.01, noise_multiplier=1.0).n_steps
        254
        """
        check_number("epsilon", epsilon, 0.0, math.inf, "a positive number", open_low=True, open_high=True)
        check_delta(delta)
        is_open = settings.get("sampling_rate") is None and settings.get("sampling", "poisson") in ("poisson", "full")
        if n_steps is None and noise_multiplier is None and is_open:
            n_steps, settings = _FULL_STEPS, settings | {"sampling": "full"}
        if (n_steps is None) == (noise_multiplier is None):
            raise ValueError("Give `n_steps` to find the noise, or `noise_multiplier` to find the number of steps.")
        plan = cls(
            noise_multiplier=1.0 if noise_multiplier is None else noise_multiplier,
            n_steps=1 if n_steps is None else n_steps, **settings | {"report_delta": float(delta)},
        )  # fmt: skip
        if n_steps is not None:
            return plan.with_epsilon(epsilon, delta, accountant)
        steps = accounting.largest_n_steps(accounting.get_accountant(accountant), plan, float(epsilon), float(delta))
        return replace(plan, n_steps=steps)

    def with_epsilon(self, epsilon: float, delta: float, accountant: str = "pld") -> PrivacyPlan:
        """The same plan with the least noise within (``epsilon``, ``delta``)."""
        analyst = accounting.get_accountant(accountant)
        settings = replace(self, report_delta=float(delta))
        noise = accounting.calibrate_noise(analyst, settings, float(epsilon), float(delta))
        return replace(settings, noise_multiplier=noise)

    def with_phases(self, phases: Iterable[Phase]) -> PrivacyPlan:
        """The same plan with the phases of a model; samples give all of them weight 1. Itself if it has them already.

        Raises
        ------
        ValueError
            If the phases have another number of steps, or the plan has others.
        """
        changed = scaled(phases, self.n_steps, 1.0)
        if self.sampling_rate < 1.0:
            changed = ()
        if self.phases and changed != self.phases:
            raise ValueError(
                f"The plan has the phases {self.phases}, and the model states {changed or 'none'}. Leave them to the model: "
                "write plan.with_n_steps(plan.n_steps)."
            )
        return self if changed == self.phases else replace(self, phases=changed)

    def with_n_steps(self, n_steps: int) -> PrivacyPlan:
        """The same plan with another number of steps, all of weight 1."""
        return replace(self, n_steps=n_steps, phases=())

    def with_repeated(self, weight: float) -> PrivacyPlan:
        """A plan that costs as much as this one and repeated steps of this total weight."""
        if self.phases:
            return replace(self, noise_multiplier=self.noise_multiplier / math.sqrt(1.0 + weight / self.n_steps))
        return replace(self, n_steps=self.n_steps + int(weight))

    @classmethod
    def non_private(cls, *, sampling_rate: float = 1.0, n_steps: int = 20) -> PrivacyPlan:
        """The same loop with no noise and an infinite clip: ordinary (stochastic) variational Bayes."""
        return cls(noise_multiplier=0.0, sampling_rate=sampling_rate, n_steps=n_steps, clip_norm=math.inf)

    @property
    def _clip(self) -> float:
        assert self.clip_norm is not None, "the plan of a fit has a clip norm"
        return self.clip_norm

    @property
    def is_private(self) -> bool:
        """Whether noise is added at all."""
        return self.noise_multiplier > 0.0

    @property
    def has_guarantee(self) -> bool:
        """Whether fits with this plan are private: there is noise, no seed reproduces it, and the plan is not of a subclass,
        which could change sampling, clip and noise."""
        return self.is_private and not self.reproducible_noise and type(self) is PrivacyPlan

    def epsilon(self, delta: float, accountant: str = "pld", *, orders: Sequence[float] | str | None = None) -> float:
        """ε at ``delta``; ``inf`` without noise.

        Parameters
        ----------
        delta : float in (0, 1)
        accountant : {"pld", "rdp", "moments", "strong", "basic"}
            "pld" is the tightest, and analyses every plan; the others refuse replace-one (docs/accounting.md).
        orders : sequence of float or "paper", optional
            Orders of "rdp" and "moments"; "paper" is the range of the paper's theorem (∞ where it is empty).
        """
        check_delta(delta)
        analyst = accounting.get_accountant(accountant, orders)
        if not self.is_private:
            return math.inf
        analyst.check(self)
        return analyst.epsilon(self, float(delta), orders)

    def delta(self, epsilon: float, accountant: str = "pld", *, orders: Sequence[float] | str | None = None) -> float:
        """δ at ``epsilon``; 1 without noise. Arguments as in :meth:`epsilon`."""
        check_number("epsilon", epsilon, 0.0, math.inf, "a number ≥ 0", open_high=True)
        analyst = accounting.get_accountant(accountant, orders)
        if not self.is_private:
            return 1.0
        analyst.check(self)
        return analyst.delta(self, float(epsilon), orders)

    def gdp_mu(self) -> float | None:
        """μ of Gaussian differential privacy, √T · sensitivity ÷ noise, where that is exact; else None.

        Exact without sampling: T Gaussian mechanisms then equal a single one (Dong, Roth and Su, 2022).
        """
        if not self.is_private or self.sampling_rate != 1.0:
            return None
        return math.sqrt(self.n_steps) / self.sensitive_noise_multiplier()

    def sensitive_noise_multiplier(self) -> float:
        """Noise standard deviation ÷ the most by which one record can move the sum: its share, and two of them if replaced."""
        return self.noise_per_share() / (1.0 if self.relation == "add_or_remove" else 2.0)

    def noise_per_share(self) -> float:
        """Noise standard deviation ÷ the largest norm of one record's share: C, and 1/512 more where records are rounded to a
        lattice."""
        return self.noise_multiplier / (SENSITIVITY_FACTOR if self.rounds_records else 1.0)

    def event(self, accountant: str = "pld") -> Any:
        """The whole fit as a ``dp_accounting.DpEvent``, to compose with other mechanisms under ``relation``.

        Parameters
        ----------
        accountant : {"pld", "rdp"}
            The accountant of dp_accounting for which the event is written. Where the other one would misread the event, it
            refuses it (docs/accounting.md).

        Raises
        ------
        ValueError
            If that accountant cannot analyse the plan.
        """
        return accounting.event(self, accountant)

    def randomness(self, random_state: object) -> Randomness:
        """Fresh randomness for one fit: seeded only where nothing private depends on it."""
        return noise.Randomness.for_fit(random_state, reproducible=self.reproducible_noise or not self.is_private)

    def sampler(self, randomness: Randomness, step: int) -> Callable[[int], PoissonCoins]:
        """The sample of one step: a function from a partition's number to the object that chooses its rows."""
        key = randomness.sampling_key
        return lambda partition: PoissonCoins(self.sampling_rate, key, step, partition)

    def clip_weights(self, norms: np.ndarray) -> np.ndarray:
        """Weight of each record; see :func:`~vips.core.mechanism.clipping.clip_weights`."""
        return clip_weights(norms, self._clip)

    def shares_of(self, sample_weights: np.ndarray) -> np.ndarray:
        """min(w, W)/W of each weight; without noise W may be infinite, and weights count as they are."""
        return sample_weights if self.max_weight == math.inf else np.minimum(sample_weights / self.max_weight, 1.0)

    def of_step(self, step: int) -> PrivacyPlan:
        """The plan whose noise, in every step, is that of this ``step``, counted from 1."""
        return self._with_weight(weight_of_step(self.phases, step)) if self.phases else self

    def _with_weight(self, weight: float) -> PrivacyPlan:
        noise = self.noise_multiplier / math.sqrt(weight)
        return replace(self, noise_multiplier=max(noise, _LEAST_NOISE) if noise else 0.0, phases=())

    def _extreme_weights(self) -> tuple[float, ...]:
        weights = [phase.weight for phase in self.phases]
        return (min(weights), max(weights)) if weights else ()

    def noise_std(self) -> float:
        """Noise per coordinate of the scaled sum, σ·C, in a step of weight 1."""
        return self.noise_multiplier * self._clip if self.is_private else 0.0

    def lattice(self, blocks: Mapping[str, Block]) -> Lattice | None:
        """The lattice to which records are rounded; None if they are not rounded."""
        if not self.rounds_records:
            return None
        return Lattice.for_blocks(blocks, self.noise_multiplier, self._clip, self.max_rows_per_group or 1)

    def check_blocks(self, blocks: Mapping[str, Block]) -> None:
        """Raise ValueError if the lattice of a step cannot hold these blocks."""
        for weight in self._extreme_weights() or (1.0,):
            self._with_weight(weight).lattice(blocks)

    @property
    def rounds_records(self) -> bool:
        """Whether each clipped record is rounded before it is summed: its statistics must then be a function of that record,
        and nothing else, to the last bit."""
        return self.noise == "discrete"

    def mechanism(
        self, blocks: Mapping[str, Block], randomness: Randomness, std: Mapping[str, float | np.ndarray]
    ) -> Mechanism:
        """The object that releases the totals of one run; ``std`` is the noise in the average with which the run starts."""
        return IndependentNoise(self, blocks, randomness, std)

    def add_noise(
        self, total: Mapping[str, np.ndarray], blocks: Mapping[str, Block], randomness: Randomness, step: int
    ) -> dict[str, np.ndarray]:
        """``total`` plus one fresh draw of a step's noise over all blocks; ``total`` itself without noise."""
        if not self.is_private:
            return dict(total)
        plan, bits = self.of_step(step), randomness.noise_bits(step)
        lattice = plan.lattice(blocks)
        if lattice is not None:
            return noise.add_discrete_noise(total, blocks, lattice, bits)
        return noise.add_noise(total, blocks, plan.noise_std(), np.random.Generator(bits))

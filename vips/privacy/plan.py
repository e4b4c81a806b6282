"""The privacy plan: public numbers, and the four things that are done with them.

One object draws the sample, gives the clip weights, adds the noise and names its own event, so that sampling, noise
and accounting cannot disagree. Fields are public and may be printed; data and generators are arguments.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from vips.privacy import accounting, noise
from vips.privacy.clipping import clip_weights
from vips.privacy.sampling import poisson_sample

__all__ = ["PrivacyPlan"]


@dataclass(frozen=True, kw_only=True)
class PrivacyPlan:
    """What a private fit may do to the data, and what that costs.

    In each of ``n_steps`` steps every record takes part with probability ``sampling_rate``, independently; each
    record's statistics are scaled to L2 norm at most ``clip_norm`` over all blocks jointly; their sum is released with
    Gaussian noise of standard deviation ``noise_multiplier × clip_norm`` per coordinate.

    Parameters
    ----------
    noise_multiplier : float
        σ ≥ 0: noise standard deviation of the (scaled) sum ÷ ``clip_norm``. 0 means no noise and no guarantee.
    sampling_rate : float
        q in (0, 1].
    n_steps : int
        T ≥ 1. Steps are never stopped early or repeated because of the data.
    clip_norm : float or None
        C > 0. None takes the model's ``default_clip()``, a public constant of the model's arguments.
    sampling : {"poisson", "full"}
        "full" takes all records in every step and needs ``sampling_rate=1.0``.
    relation : {"add_or_remove"}
        Neighbouring data sets differ by one record present or absent.
    reproducible_noise : bool
        True derives sampling and noise from the model's ``random_state``, for tests and for experiments on public
        data. Such a fit carries no guarantee, and its report says so.
    report_delta : float or None
        δ at which reports quote ε; ``from_epsilon`` sets it. There is no default.

    Guarantees
    ----------
    With ``noise_multiplier > 0`` and ``reproducible_noise=False``, the sequence of all noisy totals, and whatever is
    computed from them, is (``epsilon(delta)``, ``delta``)-differentially private under ``relation``, for every δ.

    Examples
    --------
    >>> plan = PrivacyPlan(noise_multiplier=1.24, sampling_rate=0.05, n_steps=20)
    >>> round(plan.epsilon(1e-4), 3), round(plan.epsilon(1e-4, accountant="moments", orders="paper"), 3)
    (0.932, 2.441)
    """

    noise_multiplier: float
    sampling_rate: float
    n_steps: int
    clip_norm: float | None = None
    sampling: str = "poisson"
    relation: str = "add_or_remove"
    reproducible_noise: bool = False
    report_delta: float | None = None

    def __post_init__(self) -> None:
        # Moderate ranges: a product of two of these neither vanishes nor overflows.
        if self.noise_multiplier != 0:
            _check_number("noise_multiplier", self.noise_multiplier, 1e-12, 1e12, "0, or between 1e-12 and 1e12")
        _check_number("sampling_rate", self.sampling_rate, 1e-12, 1.0, "in (0, 1], and not below 1e-12")
        _check_steps(self.n_steps)
        if self.clip_norm is not None and self.clip_norm != math.inf:
            _check_number("clip_norm", self.clip_norm, 1e-12, 1e12,
                          "between 1e-12 and 1e12, inf without noise, or None for the model's default")  # fmt: skip
        if not isinstance(self.reproducible_noise, bool | np.bool_):
            raise ValueError(f"`reproducible_noise` must be True or False, got {self.reproducible_noise!r}.")
        for name, kind in (
            ("noise_multiplier", float),
            ("sampling_rate", float),
            ("n_steps", int),
            ("clip_norm", float),
        ):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, kind(getattr(self, name)))  # no float16, whose products vanish
        if self.sampling not in ("poisson", "full"):
            raise ValueError(
                f'`sampling` must be "poisson" or "full", got {self.sampling!r}: shuffled or fixed-size batches do not '
                "have the privacy that Poisson accounting states."
            )
        if self.sampling == "full" and self.sampling_rate != 1.0:
            raise ValueError('sampling="full" takes every record: write `sampling_rate=1.0` with it.')
        if self.relation != "add_or_remove":
            raise ValueError(f'`relation` must be "add_or_remove", got {self.relation!r}.')
        if self.noise_multiplier > 0 and self.clip_norm == math.inf:
            raise ValueError("Noise needs a finite `clip_norm`: an unclipped sum has no sensitivity to scale it to.")
        if self.report_delta is not None:
            _check_delta(self.report_delta)

    @classmethod
    def from_epsilon(
        cls,
        *,
        epsilon: float,
        delta: float,
        sampling_rate: float,
        n_steps: int,
        accountant: str = "pld",
        clip_norm: float | None = None,
        sampling: str = "poisson",
        relation: str = "add_or_remove",
        reproducible_noise: bool = False,
    ) -> PrivacyPlan:
        """The plan with the least noise that satisfies (ε, δ); never less noise than that.

        ``epsilon`` and ``delta`` have no defaults. A common choice of δ is well below one over the number of records;
        write it from public knowledge, not by counting.

        Raises
        ------
        ValueError
            If ε ≤ 0, δ outside (0, 1), or another argument is out of range.
        """
        _check_number("epsilon", epsilon, 0.0, math.inf, "a positive number", open_low=True, open_high=True)
        _check_delta(delta)
        settings = cls(noise_multiplier=1.0, sampling_rate=sampling_rate, n_steps=n_steps, clip_norm=clip_norm,
                       sampling=sampling, relation=relation, reproducible_noise=reproducible_noise,
                       report_delta=float(delta))  # fmt: skip
        sigma = accounting.calibrate_noise(
            accountant, settings.sampling_rate, settings.n_steps, float(epsilon), float(delta)
        )
        return replace(settings, noise_multiplier=sigma)

    @classmethod
    def non_private(cls, *, sampling_rate: float = 1.0, n_steps: int = 20) -> PrivacyPlan:
        """The same loop with no noise and an infinite clip: ordinary (stochastic) variational Bayes."""
        return cls(noise_multiplier=0.0, sampling_rate=sampling_rate, n_steps=n_steps, clip_norm=math.inf)

    @property
    def is_private(self) -> bool:
        """Whether noise is added at all."""
        return self.noise_multiplier > 0.0

    def epsilon(self, delta: float, accountant: str = "pld", *, orders: Sequence[float] | str | None = None) -> float:
        """ε at ``delta``; ``inf`` without noise.

        Parameters
        ----------
        delta : float in (0, 1)
        accountant : {"pld", "rdp", "moments"}
        orders : sequence of float or "paper", optional
            Orders of "rdp" and "moments"; "paper" is the range of the paper's theorem (∞ where it is empty).
        """
        _check_delta(delta)
        analyst = accounting.get_accountant(accountant, orders)
        if not self.is_private:
            return math.inf
        return analyst.epsilon(*self._mechanism(), float(delta), orders)

    def delta(self, epsilon: float, accountant: str = "pld", *, orders: Sequence[float] | str | None = None) -> float:
        """δ at ``epsilon``; 1 without noise. Arguments as in :meth:`epsilon`."""
        _check_number("epsilon", epsilon, 0.0, math.inf, "a number ≥ 0", open_high=True)
        analyst = accounting.get_accountant(accountant, orders)
        if not self.is_private:
            return 1.0
        return analyst.delta(*self._mechanism(), float(epsilon), orders)

    def event(self):
        """The whole fit as a ``dp_accounting.DpEvent``, to compose with other mechanisms."""
        return accounting.subsampled_gaussian_event(*self._mechanism())

    def _mechanism(self) -> tuple[float, float, int]:
        return self.sampling_rate, self.noise_multiplier, self.n_steps

    def randomness(self, random_state: object) -> noise.Randomness:
        """Fresh randomness for one fit: seeded only where nothing private depends on it."""
        return noise.Randomness.for_fit(random_state, reproducible=self.reproducible_noise or not self.is_private)

    def sample(self, n_records: int, randomness: noise.Randomness, step: int, partition: int) -> np.ndarray:
        """Indices of the records of a partition that take part in a step; see ``poisson_sample``."""
        return poisson_sample(n_records, self.sampling_rate, randomness.sampling_key, step, partition)

    def clip_weights(self, norms: np.ndarray) -> np.ndarray:
        """Weight of each record; see ``clip_weights``."""
        return clip_weights(norms, self.clip_norm)

    def noise_std(self) -> float:
        """Noise per coordinate of the scaled sum, σ·C."""
        return self.noise_multiplier * self.clip_norm if self.is_private else 0.0

    def add_noise(
        self, total: Mapping[str, np.ndarray], blocks: Mapping[str, object], randomness: noise.Randomness
    ) -> dict[str, np.ndarray]:
        """``total`` plus one fresh draw of noise over all blocks; ``total`` itself without noise."""
        if not self.is_private:
            return dict(total)
        return noise.add_noise(total, blocks, self.noise_std(), randomness.noise)


def _check_number(name, value, low, high, allowed, open_low=False, open_high=False) -> None:
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if is_number and isinstance(value, np.generic):
        value = value.item()  # comparisons in float16 would overflow
    above = is_number and (value > low if open_low else value >= low)
    below = is_number and (value < high if open_high else value <= high)
    if not (above and below):
        raise ValueError(f"`{name}` must be {allowed}, got {value!r}.")


def _check_steps(n_steps) -> None:
    if not isinstance(n_steps, int | np.integer) or isinstance(n_steps, bool) or n_steps < 1:
        raise ValueError(f"`n_steps` must be an integer ≥ 1, got {n_steps!r}.")


def _check_delta(delta) -> None:
    _check_number("delta", delta, 0.0, 1.0, "strictly between 0 and 1", open_low=True, open_high=True)

"""Step sizes ρ_t of the running average."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PolynomialAveraging", "RobbinsMonro"]


@dataclass(frozen=True)
class RobbinsMonro:
    """ρ_t = (τ₀ + t)^(-κ), t = 1, 2, …

    Parameters
    ----------
    offset : float
        τ₀ ≥ 0. Large values slow the first steps down; 0 makes ρ_1 = 1, which forgets the starting point at once.
    decay : float
        κ in [0, 1]. Between ½ and 1 the iteration converges in the limit of many steps; the fewer steps a private fit
        has, the smaller κ may be. 0 never averages.
    """

    offset: float = 1.0
    decay: float = 0.7

    def __post_init__(self) -> None:
        if not self.offset >= 0.0:
            raise ValueError(f"`offset` must be ≥ 0, got {self.offset!r}.")
        if not 0.0 <= self.decay <= 1.0:
            raise ValueError(f"`decay` must be in [0, 1], got {self.decay!r}.")

    def __call__(self, step: int) -> float:
        return float((self.offset + step) ** -self.decay)


@dataclass(frozen=True)
class PolynomialAveraging:
    """ρ_t = (p + 1) / (t + p), t = 1, 2, …: after T steps, step t has weight proportional to about t^p.

    Suits few private steps: the first step forgets the starting point, early totals (computed under poor posteriors)
    soon count for little, and the last ones are averaged, which reduces their noise. Shamir and Zhang (2013).

    Parameters
    ----------
    power : float
        p ≥ 0; 0 is the plain average of all steps.
    """

    power: float = 2.0

    def __post_init__(self) -> None:
        if not self.power >= 0.0:
            raise ValueError(f"`power` must be ≥ 0, got {self.power!r}.")

    def __call__(self, step: int) -> float:
        return float((self.power + 1.0) / (step + self.power))

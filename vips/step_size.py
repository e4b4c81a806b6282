"""Step sizes ρ_t of the running average."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RobbinsMonro"]


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

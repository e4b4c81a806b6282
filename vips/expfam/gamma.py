"""Gamma distributions, one per entry.

    log p(x) = (a - 1) log x - b x + a log b - log Γ(a)        x > 0, a > 0, b > 0

==========================  =============================  ====================================
symbol                      name                           meaning
==========================  =============================  ====================================
a, b                        ``shape``, ``rate``            parameters; the mean is a / b
a - 1, -b                   ``natural``                    natural parameters of log x and of x
ψ(a) - log b, a / b         ``expected_log``, ``mean``     E log x and E x, the mean parameters
==========================  =============================  ====================================
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaincinv, gammaln, psi

from vips.core.mechanism.random_state import RandomStateLike, as_generator
from vips.expfam._headline import Headline, positive_arrays

__all__ = ["Gamma"]


class Gamma(Headline):
    """Independent Gamma distributions.

    Parameters
    ----------
    shape, rate : float or array
        a and b, positive and finite; broadcast with each other.

    Raises
    ------
    ValueError
        If an entry is not positive and finite.
    """

    _parameters = "shape", "rate"

    def __init__(self, shape: np.ndarray | float, rate: np.ndarray | float) -> None:
        self.shape, self.rate = positive_arrays(shape=shape, rate=rate)

    @classmethod
    def from_natural(cls, logarithmic: np.ndarray | float, linear: np.ndarray | float) -> Gamma:
        """From the natural parameters a - 1 of log x and -b of x."""
        return cls(np.asarray(logarithmic) + 1.0, -np.asarray(linear))

    @property
    def natural(self) -> tuple[np.ndarray, np.ndarray]:
        """Natural parameters a - 1 of log x and -b of x."""
        return self.shape - 1.0, -self.rate

    @property
    def mean(self) -> np.ndarray:
        """E x = a / b."""
        return self.shape / self.rate

    @property
    def var(self) -> np.ndarray:
        """Var x = a / b²."""
        return self.shape / self.rate**2

    @property
    def expected_log(self) -> np.ndarray:
        """E log x = ψ(a) - log b."""
        return psi(self.shape) - np.log(self.rate)

    @property
    def log_normalizer(self) -> np.ndarray:
        """log Γ(a) - a log b."""
        return gammaln(self.shape) - self.shape * np.log(self.rate)

    @property
    def entropy(self) -> np.ndarray:
        """-E log p(x) = a - log b + log Γ(a) + (1 - a) ψ(a)."""
        return self.shape - np.log(self.rate) + gammaln(self.shape) + (1.0 - self.shape) * psi(self.shape)

    def kl(self, other: Gamma) -> np.ndarray:
        """KL(self ‖ other), one per entry."""
        # (a - a') ψ(a) - log Γ(a) + log Γ(a') + a' log (b / b') + a (b' / b - 1)
        of_shapes = (self.shape - other.shape) * psi(self.shape) - gammaln(self.shape) + gammaln(other.shape)
        of_rates = other.shape * np.log(self.rate / other.rate) + self.shape * (other.rate / self.rate - 1.0)
        return of_shapes + of_rates

    def sample(self, size: int, rng: RandomStateLike = None) -> np.ndarray:
        """Independent draws, shape (size, ...). For shapes below 0.01 some of them are zero: too small for a float64."""
        return as_generator(rng).standard_gamma(self.shape, (size, *self.shape.shape)) / self.rate

    def interval(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Central credible interval: (lower, upper) arrays."""
        self.check_level(level)
        tail = 0.5 * (1.0 - level)
        lower, upper = (gammaincinv(self.shape, p) / self.rate for p in (tail, 1.0 - tail))
        return lower, upper

"""Generalised inverse Gaussian distributions of index 0, the posteriors of variances under shrinkage priors.

    log p(x) = -log x - ½ (a x + b / x) - log 2 K₀(√(ab))        x > 0, a > 0, b > 0

==========================  =============================  =====================================================
symbol                      name                           meaning
==========================  =============================  =====================================================
a, b                        ``rate``, ``inverse_rate``     parameters
-a/2, -b/2                  ``natural``                    natural parameters of x and of 1/x
√(b/a) K₁/K₀                ``mean``                       E x, K at √(ab)
√(a/b) K₁/K₀                ``inverse_mean``               E 1/x; with E x the mean parameters
½ log(b/a)                  ``expected_log``               E log x
==========================  =============================  =====================================================

Appendix C of Park et al. (arXiv:1611.00340); Jørgensen (1982).
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from scipy.special import k0e, k1e

from vips.core.mechanism.random_state import RandomStateLike, as_generator
from vips.expfam._headline import Headline, positive_arrays

__all__ = ["GeneralizedInverseGaussian"]


class GeneralizedInverseGaussian(Headline):
    """Independent distributions GIG(0, a, b).

    Parameters
    ----------
    rate, inverse_rate : float or array
        a and b, positive and finite; broadcast with each other.

    Raises
    ------
    ValueError
        If an entry is not positive and finite.
    """

    _parameters = "rate", "inverse_rate"
    _shown = ("mean",)

    def __init__(self, rate: np.ndarray | float, inverse_rate: np.ndarray | float) -> None:
        self.rate, self.inverse_rate = positive_arrays(rate=rate, inverse_rate=inverse_rate)

    @classmethod
    def from_natural(cls, linear: np.ndarray | float, inverse: np.ndarray | float) -> GeneralizedInverseGaussian:
        """From the natural parameters -a/2 of x and -b/2 of 1/x."""
        return cls(-2.0 * np.asarray(linear), -2.0 * np.asarray(inverse))

    @property
    def natural(self) -> tuple[np.ndarray, np.ndarray]:
        """Natural parameters -a/2 of x and -b/2 of 1/x."""
        return -0.5 * self.rate, -0.5 * self.inverse_rate

    @property
    def mean(self) -> np.ndarray:
        """E x = √(b/a) K₁(√(ab)) / K₀(√(ab))."""
        return self._scale * self._bessel_ratio

    @property
    def inverse_mean(self) -> np.ndarray:
        """E 1/x = √(a/b) K₁(√(ab)) / K₀(√(ab))."""
        return self._bessel_ratio / self._scale

    @property
    def expected_log(self) -> np.ndarray:
        """E log x = ½ log(b/a): log x is symmetric about it."""
        return np.log(self._scale)

    @property
    def log_normalizer(self) -> np.ndarray:
        """log 2 K₀(√(ab))."""
        return np.log(2.0 * k0e(self._argument)) - self._argument

    @property
    def entropy(self) -> np.ndarray:
        """-E log p(x)."""
        return self.expected_log + self._argument * self._bessel_ratio + self.log_normalizer

    def kl(self, other: GeneralizedInverseGaussian) -> np.ndarray:
        """KL(self ‖ other), one per entry."""
        of_rates = 0.5 * (other.rate - self.rate) * self.mean
        of_inverses = 0.5 * (other.inverse_rate - self.inverse_rate) * self.inverse_mean
        return of_rates + of_inverses + other.log_normalizer - self.log_normalizer

    def sample(self, size: int, rng: RandomStateLike = None) -> np.ndarray:
        """Independent draws, shape (size, ...)."""
        return self._law().rvs((size, *self.rate.shape), random_state=as_generator(rng))

    def interval(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Central credible interval: (lower, upper) arrays."""
        self.check_level(level)
        return self._law().interval(level)

    def _law(self):
        from scipy.stats import geninvgauss  # imported here because it takes a second and is rarely needed

        return geninvgauss(0.0, self._argument, scale=self._scale)

    @property
    def _argument(self) -> np.ndarray:
        return np.sqrt(self.rate) * np.sqrt(self.inverse_rate)

    @property
    def _scale(self) -> np.ndarray:
        return np.sqrt(self.inverse_rate) / np.sqrt(self.rate)

    @cached_property
    def _bessel_ratio(self) -> np.ndarray:
        """K₁/K₀, in which the exponential factors cancel."""
        return k1e(self._argument) / k0e(self._argument)

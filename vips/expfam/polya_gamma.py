"""Pólya-Gamma distributions PG(b, c), which make logistic likelihoods conjugate.

    p(ω | b, c) = cosh(c/2)^b exp(-c² ω / 2) p(ω | b, 0)        ω > 0
    e^(aψ) / (1 + e^ψ)^b = 2^(-b) e^(κψ) E[exp(-ω ψ² / 2)]      ω ~ PG(b, 0), κ = a - b/2

==========================  ======================  =======================================
symbol                      name                    meaning
==========================  ======================  =======================================
b                           ``shape``               number of trials
c                           ``tilt``                any real number; only its square matters
E ω                         ``mean``                b tanh(c/2) / (2c), b/4 at 0
==========================  ======================  =======================================

Polson, Scott and Windle (2013), arXiv:1205.0310v3.
"""

from __future__ import annotations

import math

import numpy as np

from vips.core.mechanism.random_state import RandomStateLike, as_generator
from vips.expfam._headline import Headline

__all__ = ["PolyaGamma", "polya_gamma_mean"]

_LARGEST_DEVROYE = 30  # the cost of Devroye's method grows with b; the cost of the series does not
_LARGE_TILT = 50.0  # beyond it PG(b, c) is an inverse Gaussian, up to a factor 1 ± b e^-50 of its Laplace transform
_N_TERMS = 20  # terms of the series that are drawn one by one; the rest has 3e-6 of the variance at c = 0


def polya_gamma_mean(tilt: np.ndarray | float, shape: np.ndarray | float = 1.0) -> np.ndarray:
    """E ω = b tanh(c/2) / (2c), with its series b (1/4 - c²/48) near 0.

    Examples
    --------
    >>> float(polya_gamma_mean(0.0)), float(polya_gamma_mean(-2.0, shape=4)) == float(np.tanh(1.0))
    (0.25, True)
    """
    tilt = np.abs(np.asarray(tilt, dtype=np.float64))
    near = tilt < 1e-4  # the next term of the series is c⁴/480, 2e-19 there
    safe = np.where(near, 1.0, tilt)
    series = 0.25 - np.where(near, tilt, 0.0) ** 2 / 48.0
    return shape * np.where(near, series, 0.5 * np.tanh(0.5 * safe) / safe)


class PolyaGamma(Headline):
    """Independent Pólya-Gamma distributions.

    Parameters
    ----------
    shape : float or array
        b > 0.
    tilt : float or array
        c; broadcast with ``shape``. Stored as its absolute value.

    Raises
    ------
    ValueError
        If a shape is not positive, or a number is not finite.
    """

    def __init__(self, shape: np.ndarray | float = 1.0, tilt: np.ndarray | float = 0.0) -> None:
        tilt = np.abs(np.asarray(tilt, dtype=np.float64))
        shape, tilt = (np.array(a, dtype=np.float64) for a in np.broadcast_arrays(shape, tilt))
        if not (np.isfinite(shape).all() and (shape > 0.0).all() and np.isfinite(tilt).all()):
            raise ValueError("`shape` must be positive, and `shape` and `tilt` finite.")
        shape.flags.writeable = tilt.flags.writeable = False
        self.shape, self.tilt = shape, tilt

    @property
    def mean(self) -> np.ndarray:
        """E ω = b tanh(c/2) / (2c)."""
        return polya_gamma_mean(self.tilt, self.shape)

    @property
    def var(self) -> np.ndarray:
        """Var ω = b (sinh c - c) / (4c³ cosh²(c/2)), b/24 at 0."""
        near = self.tilt < 1.0
        small, large = np.where(near, self.tilt, 0.0), np.where(near, 1.0, self.tilt)
        # (sinh c - c) / c³ = Σ_j c^(2j) / (2j + 3)!, to the last digit for c < 1
        series = np.polyval([1.0 / math.factorial(2 * j + 3) for j in range(8, -1, -1)], small**2)
        # sinh c / cosh²(c/2) = 2 tanh(c/2) and 1 / cosh²(c/2) = 4 e^-c / (1 + e^-c)²: nothing overflows
        decay = np.exp(-large)
        far = 0.5 * (np.tanh(0.5 * large) - large * (2.0 * decay / (1.0 + decay) ** 2)) / large / large / large
        return self.shape * np.where(near, 0.25 * series / np.cosh(0.5 * small) ** 2, far)

    def laplace(self, t: np.ndarray | float) -> np.ndarray:
        """E exp(-t ω) = (cosh(c/2) / cosh(√(c²/4 + t/2)))^b, for t ≥ 0."""
        if not (np.asarray(t) >= 0.0).all():
            raise ValueError("`t` must not be negative.")
        half = 0.5 * self.tilt
        return np.exp(self.shape * (_log_cosh(half) - _log_cosh(np.hypot(half, np.sqrt(0.5 * np.asarray(t))))))

    def kl(self, other: PolyaGamma) -> np.ndarray:
        """KL(self ‖ other), for equal shapes: b log (cosh(c/2) / cosh(c'/2)) - (c² - c'²) E ω / 2.

        For ``PolyaGamma(b)`` as ``other``, the prior of the augmentation: b log cosh(c/2) - (b c / 4) tanh(c/2).
        """
        if not np.array_equal(*np.broadcast_arrays(self.shape, other.shape)):
            raise ValueError("The divergence has a closed form for equal shapes only.")
        log_ratio = self.shape * (_log_cosh(0.5 * self.tilt) - _log_cosh(0.5 * other.tilt))
        difference = (self.tilt - other.tilt) * self.mean  # multiplied in an order in which c² cannot overflow
        return log_ratio - 0.5 * difference * (self.tilt + other.tilt)

    def sample(self, size: int, rng: RandomStateLike = None) -> np.ndarray:
        """Independent draws, shape (size, ...). For reference samplers and tests: inference needs the mean only.

        For tilts above 50 the draws come from an inverse Gaussian, which is the distribution up to rounding. Otherwise integer
        shapes up to 30 are drawn exactly, by Devroye's method of the ``polyagamma`` package. Other shapes are drawn from the
        gamma series: 20 terms one by one, and the sum of the rest as an inverse Gaussian with its exact mean and variance.

        ``polyagamma`` 2.0.2 alone does not suffice, as 200,000 draws showed. ``alternate`` is biased for small tilts (and so is
        the default, for non-integer shapes between 1 and 8), ``saddle`` for shapes below 8, and ``gamma``, which truncates its
        series, for large shapes and tilts. ``devroye`` returns 0.16 b for tilts of 200 and more, where the mean is b / (2c).
        """
        full = (size, *self.shape.shape)
        return draw_polya_gamma(np.broadcast_to(self.shape, full), np.broadcast_to(self.tilt, full), as_generator(rng))


def draw_polya_gamma(shape: np.ndarray, tilt: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One draw of PG(b, c) for each entry of two arrays of the same shape: ``PolyaGamma.sample`` without its checks."""
    tilt, draws = np.abs(tilt), np.empty(shape.shape)
    large = tilt > _LARGE_TILT
    whole = ~large & (shape == np.floor(shape)) & (shape <= _LARGEST_DEVROYE)
    for chosen, method in ((large, _limit), (whole, _devroye), (~large & ~whole, _series)):
        if chosen.any():
            draws[chosen] = method(shape[chosen], tilt[chosen], rng)
    return draws


def _limit(shape: np.ndarray, tilt: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    # cosh x = e^x / 2 to rounding: E exp(-t ω) = exp(b c / 2 - b √(c²/4 + t/2)), an inverse Gaussian's
    # of mean μ = b / (2c) and scale b²/4 = μ · bc/2; beyond c = 1e100 it is a single point up to rounding
    return 0.5 * shape / tilt * rng.wald(1.0, 0.5 * shape * np.minimum(tilt, 1e100))


def _devroye(shape: np.ndarray, tilt: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    from polyagamma import random_polyagamma

    return random_polyagamma(shape, tilt, method="devroye", disable_checks=True, random_state=rng)


def _series(shape: np.ndarray, tilt: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    # ω = Σ_k g_k / (2π² (k - ½)² + c²/2), g_k ~ Gamma(b, 1)          Definition 1 of Polson, Scott and Windle
    law = PolyaGamma(shape, tilt)
    draws, rest_mean, rest_var = np.zeros(shape.shape), law.mean, law.var
    for k in range(1, _N_TERMS + 1):
        weight = 1.0 / (2.0 * np.pi**2 * (k - 0.5) ** 2 + 0.5 * tilt**2)
        draws += weight * rng.standard_gamma(shape)
        rest_mean, rest_var = rest_mean - shape * weight, rest_var - shape * weight**2
    return draws + rng.wald(rest_mean, rest_mean**3 / rest_var)


def _log_cosh(x: np.ndarray) -> np.ndarray:
    x = np.abs(x)
    return x + np.log1p(np.exp(-2.0 * x)) - np.log(2.0)

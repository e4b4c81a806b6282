"""What the kernels of LDA are compiled with, and the digamma function."""

from __future__ import annotations

import numpy as np

from vips.core.exact.compiled import FASTMATH, compiled

# error_model="numpy": a division by zero gives inf or NaN in that record's numbers. Numba's default would raise, and
# whether a private fit raises must not depend on a record.
# A kernel calls only what is inlined into it: calls to another compiled function are optimised in one way when both are
# compiled and in another when one comes from the cache on disk, and sums are then reordered differently.
jit = compiled(nogil=True, fastmath=FASTMATH, error_model="numpy")
inline = compiled(nogil=True, fastmath=FASTMATH, error_model="numpy", inline="always")


@inline
def _digamma_parts(x):
    """(s, e) with exp ψ(x) = e·exp(-s), x > 0, to about 1e-9: six steps of ψ(x) = ψ(x + 1) - 1/x, then the series

    exp ψ(y + ½) = y + 1/(24 y) - 37/(5760 y³) + 10313/(2903040 y⁵) - 5509121/(1393459200 y⁷) + …
    """
    # 1/x + … + 1/(x + 5), by pairs (x, x + 5), (x + 1, x + 4), (x + 2, x + 3) over one denominator, which is finite
    small = min(x, 1e20)
    product = small * (small + 5.0)
    second, third = product + 4.0, product + 6.0
    shift = (2.0 * small + 5.0) * (product * (second + third) + second * third) / (product * second * third)
    y = x + 5.5
    inverse = 1.0 / y
    z = inverse * inverse
    series = 1.0 / 24.0 - z * (37.0 / 5760.0 - z * (10313.0 / 2903040.0 - z * (5509121.0 / 1393459200.0)))
    return shift, y + series * inverse


@inline
def exp_small(x):
    """exp(x) for |x| ≤ 0.4, to 1e-11. A call of the library's function would keep a loop from being vectorised."""
    high = 1.0 / 24.0 + x * (
        1.0 / 120.0 + x * (1.0 / 720.0 + x * (1.0 / 5040.0 + x * (1.0 / 40320.0 + x * (1.0 / 362880.0))))
    )
    return 1.0 + x * (1.0 + x * (1.0 / 2.0 + x * (1.0 / 6.0 + x * high)))


@inline
def exp_digamma(x):
    """exp ψ(x) for x > 0 to about 1e-9, or less than 1e-33 where that is smaller still."""
    shift, series = _digamma_parts(x)
    power = exp_small(min(shift, 80.0) * (-1.0 / 256.0))
    for _ in range(8):
        power = power * power
    return power * series


@inline
def digamma(x):
    """ψ(x) for x > 0."""
    shift, series = _digamma_parts(x)
    return np.log(series) - shift

"""Valid views of noisy totals of switching systems, and of the parameters that they give.

Coordinates are those of the start, in which states have variance 1: so a least eigenvalue has a meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from vips.models._definite import floored
from vips.models.dynamics.moments import shared
from vips.models.dynamics.posterior import stable
from vips.models.dynamics.switching_posterior import SwitchingPosterior

__all__ = ["repaired", "view"]

_VISIBLE = 10.0  # deviations of the noise in a count below which nothing is seen
_LARGEST = 0.995  # modulus of an eigenvalue of the moves
_LEAST, _LEAST_START, _LEAST_NOISE = (
    0.02,
    0.05,
    0.02,
)  # of eigenvalues of covariances, and of variances of columns' noise


def view(totals: Mapping[str, np.ndarray], noise_std: Mapping[str, float]) -> dict[str, np.ndarray]:
    """Totals without negative counts or moments. Where noise is larger than the differences between the columns' moments of the
    states, columns share their average. What noise hides counts as not seen, so that its parameters stay as they are."""
    denoised = dict(totals)
    for name in ("regimes", "pairs", "first_regime"):
        denoised[name] = np.maximum(totals[name], 0.0)
    denoised["counts"] = np.maximum(totals["counts"], 1.0)
    seen = shared(totals["seen"], noise_std["seen"], (0,))
    least = max(noise_std["seen"], _LEAST * denoised["counts"][1])
    denoised["seen"] = np.array([floored(moments, least) for moments in seen])
    denoised["before"] = np.array([
        floored(moments, max(noise_std["before"], _LEAST * count))
        for moments, count in zip(totals["before"], denoised["regimes"], strict=True)
    ])  # fmt: skip
    denoised["regimes"] = np.where(denoised["regimes"] > _VISIBLE * noise_std["before"], denoised["regimes"], 0.0)
    if not denoised["counts"][1] > _VISIBLE * noise_std["seen"]:
        denoised["seen"] = np.zeros(denoised["seen"].shape)
    if not denoised["counts"][0] > _VISIBLE * noise_std["begin"]:
        denoised["counts"] = np.array([0.0, denoised["counts"][1]])
    return denoised


def repaired(posterior: SwitchingPosterior) -> SwitchingPosterior:
    """With moves that are stable, and covariances and variances that are not too small."""
    of = posterior.dynamics
    variance = np.square(of.loadings).sum(axis=1) + of.noise_variance
    return replace(
        posterior,
        moves=np.array([stable(moves, _LARGEST) for moves in posterior.moves]),
        moves_cov=np.array([floored(covariance, _LEAST) for covariance in posterior.moves_cov]),
        dynamics=replace(
            of, start_cov=floored(of.start_cov, _LEAST_START),
            noise_variance=np.maximum(of.noise_variance, _LEAST_NOISE * variance),
        ),
    )  # fmt: skip

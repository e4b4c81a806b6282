"""Exponential families: parameters, expectations, divergences, sampling. NumPy and SciPy only, and ``polyagamma`` for draws."""

from vips.expfam.dirichlet import Dirichlet, ScaledDirichlet
from vips.expfam.draws import Draws
from vips.expfam.gamma import Gamma
from vips.expfam.gaussian import DiagonalGaussian, Gaussian
from vips.expfam.generalized_inverse_gaussian import GeneralizedInverseGaussian
from vips.expfam.polya_gamma import PolyaGamma, polya_gamma_mean

__all__ = [
    "DiagonalGaussian",
    "Dirichlet",
    "Draws",
    "Gamma",
    "Gaussian",
    "GeneralizedInverseGaussian",
    "PolyaGamma",
    "ScaledDirichlet",
    "polya_gamma_mean",
]

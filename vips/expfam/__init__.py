"""Exponential families: parameters, expectations, divergences, sampling. NumPy and SciPy only."""

from vips.expfam.dirichlet import Dirichlet

__all__ = ["Dirichlet"]

"""Mixtures of Gaussian and Student-t components."""

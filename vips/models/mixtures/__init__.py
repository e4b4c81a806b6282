"""Mixtures whose components are distributions over answers: latent classes."""

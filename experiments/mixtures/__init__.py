"""Mixtures: latent classes of surveys and registers."""

"""Gaussian components in coordinates of their own: what mixtures and hidden Markov models share."""

"""Counts of areas: negative binomial, with a Gaussian field over a declared map."""

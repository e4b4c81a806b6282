"""Logistic regression: Adult, diabetes, stroke, against Gibbs sampling."""

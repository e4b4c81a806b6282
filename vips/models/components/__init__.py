"""Distributions of columns in the components of a mixture, or in the states of a chain; they import no family of models."""

"""Checkpoints and fitted models as files."""

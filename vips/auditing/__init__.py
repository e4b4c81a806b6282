"""Finds models that break their promises, and plans that break theirs: ``vips.audit``."""

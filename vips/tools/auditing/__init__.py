"""Finds models and plans that break their promises: ``vips.audit``."""

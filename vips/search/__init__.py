"""Chooses settings privately: ``vips.PrivateSearch``."""

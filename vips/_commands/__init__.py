"""``python -m vips fit`` and ``predict``: private fits for people who do not program."""

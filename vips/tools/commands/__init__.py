"""``python -m vips fit``, ``predict`` and ``certificate``: for people who do not program."""

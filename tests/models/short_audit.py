"""Audits of models with few hostile records, without replays and canaries: those of the laws' models are whole."""

from tests.tools.auditing.audits import look_only_for
from vips.tools.auditing import search


def shorten(patch):
    look_only_for({"sums"}, patch)
    records = search.hostile_records
    patch.setattr(search, "hostile_records", lambda *args: dict(list(records(*args).items())[::3]))
    patch.setattr(search.Search.run, "__defaults__", (4,))  # mutations

"""Audits on every change replay fits to fewer neighbours than users' audits do; those before a release, to as many."""

import pytest


@pytest.fixture(autouse=True)
def few_neighbours(request, monkeypatch):
    if request.node.get_closest_marker("slow") is None:
        monkeypatch.setattr("vips.auditing.audit.REPLAYED", 8)

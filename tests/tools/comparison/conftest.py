"""Reports without what takes most of their time."""

import pytest

from vips.tools.comparison import charts


@pytest.fixture
def empty_figures(monkeypatch):
    """Figures keep their descriptions and are empty."""
    original = charts._svg
    monkeypatch.setattr(charts, "_svg", lambda draw, *others: original(lambda figure: None, *others))

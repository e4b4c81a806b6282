"""Tests of models fit small tables, which one thread does faster than several. Tests of threads set their number themselves."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def in_one_thread(one_thread):
    """For every test of this folder."""

"""The path of a ledger."""

import pytest


@pytest.fixture
def path(tmp_path):
    return tmp_path / "letters.ledger"

"""Generated examples, and fixtures for the tests of audits and of blocks of ledgers."""

import os

import hypothesis
import pytest

from vips import PrivacyLedger

# `make test` generates the same examples in every run; `make test-all` looks for new ones
hypothesis.settings.register_profile("same", derandomize=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


@pytest.fixture(scope="module")
def one_thread():
    """One thread only: for ten records a pool of threads takes longer than the fits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vips._compute.threads.n_threads", lambda: 1)
        yield


@pytest.fixture
def ledger(tmp_path):
    return PrivacyLedger(tmp_path / "letters.ledger", epsilon=6.0, delta=1e-5, dataset="letters")


@pytest.fixture
def other(tmp_path):
    return PrivacyLedger(tmp_path / "other.ledger", epsilon=6.0, delta=1e-5, dataset="other")

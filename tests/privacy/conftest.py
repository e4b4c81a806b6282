"""Fixtures of the tests of audits."""

import pytest


@pytest.fixture(scope="module")
def one_thread():
    """A pool of threads for ten records takes longer than the fits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vips._threads.n_threads", lambda: 1)
        yield

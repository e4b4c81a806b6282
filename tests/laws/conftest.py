"""Laws ask what a posterior depends on, not what it tells: few iterations of EM, in one thread, are enough. Tests of threads
(``test_bits.py``) set their number themselves."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def in_one_thread(few_iterations, one_thread):
    """For every test of this folder."""

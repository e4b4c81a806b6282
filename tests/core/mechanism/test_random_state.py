"""Wherever draws can be seeded, an integer, a Generator, a RandomState and None are accepted."""

import numpy as np
import pytest

from vips.core.mechanism.random_state import as_generator
from vips.expfam import Dirichlet, Gamma, Gaussian

DRAWS = {
    "Dirichlet": lambda seed: Dirichlet(np.ones(3)).sample(4, seed),
    "Gamma": lambda seed: Gamma(np.ones(3), np.ones(3)).sample(4, seed),
    "Gaussian": lambda seed: Gaussian(np.zeros(2), np.eye(2)).sample(4, seed),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_every_kind_of_seed(draw):
    np.testing.assert_array_equal(draw(3), draw(np.random.default_rng(3)))
    np.testing.assert_array_equal(draw(np.int64(3)), draw(3))
    np.testing.assert_array_equal(draw(np.random.RandomState(3)), draw(np.random.RandomState(3)))
    assert not np.array_equal(draw(None), draw(None))
    for moves_on in (np.random.default_rng(3), np.random.RandomState(3)):
        assert not np.array_equal(draw(moves_on), draw(moves_on))


@pytest.mark.parametrize("seed", ["0", -1, 0.5, [1, 2]])
def test_anything_else_is_refused(seed):
    with pytest.raises(ValueError, match="`random_state` must be None, a non-negative integer"):
        as_generator(seed)

"""Matching recovers a known permutation."""

from itertools import permutations

import numpy as np
import pytest

from vips.tools.comparison import align


@pytest.mark.parametrize("seed", range(3))
def test_a_permutation_of_fifty_perturbed_topics_is_recovered(seed):
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(500, 0.1), 50)
    noisy = 0.5 * topics + 0.5 * rng.dirichlet(np.full(500, 0.1), 50)
    order = rng.permutation(50)
    alignment = align(topics, noisy[order])
    np.testing.assert_array_equal(order[alignment.order], np.arange(50))
    expected = np.sqrt(0.5 * ((np.sqrt(topics) - np.sqrt(noisy)) ** 2).sum(axis=1))
    np.testing.assert_allclose(alignment.distances, expected, rtol=1e-12)
    assert (align(topics, topics).distances == 0.0).all()


def test_hidden_units_keep_their_signs():
    rng = np.random.default_rng(0)
    units = rng.normal(size=(6, 40))
    order = rng.permutation(6)
    alignment = align(units, units[order] + 0.3 * rng.normal(size=units.shape), "euclidean")
    np.testing.assert_array_equal(order[alignment.order], np.arange(6))
    first = align(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[-1.0, 0.0], [0.9, 0.1]]), "euclidean")
    assert first.order.tolist() == [1, 0]


def test_the_matching_is_the_best_of_all_permutations():
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 5, 3))
    costs = {order: np.sum((a - b[list(order)]) ** 2) for order in permutations(range(5))}
    assert tuple(align(a, b, "euclidean").order.tolist()) == min(costs, key=costs.get)


@pytest.mark.parametrize(
    ("a", "b", "distance", "message"),
    [
        (np.ones((2, 3)), np.ones((3, 3)), "hellinger", "2 components cannot be matched one to one with 3"),
        (np.ones((2, 3)), np.ones((2, 4)), "hellinger", "the same columns"),
        (np.ones((2, 3)), -np.ones((2, 3)), "hellinger", "negative"),
        (np.ones((2, 3)), np.full((2, 3), np.nan), "euclidean", "finite"),
        (np.ones((2, 3)), np.ones((2, 3)), "cosine", "hellinger"),
    ],
)
def test_what_cannot_be_matched_is_refused(a, b, distance, message):
    with pytest.raises(ValueError, match=message):
        align(a, b, distance)

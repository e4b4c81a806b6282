"""Matrix products against NumPy's, in every memory order; what other threads can do meanwhile; how many threads BLAS has."""

import itertools
import threading
import time

import numpy as np
import pytest

from vips import _blas, _threads


def in_order(array, order):
    """As asked, "S" being every second column of a wider array."""
    if order == "S":
        return np.repeat(array, 2, axis=1)[:, ::2]
    return np.array(array, order=order)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("n", "k", "m"), [(5, 3, 4), (1, 3, 4), (5, 1, 4), (5, 3, 1), (1, 1, 1), (70, 30, 50), (0, 3, 2), (3, 0, 2)]
)
def test_products(n, k, m, dtype):
    rng = np.random.default_rng(0)
    a, b = rng.integers(-9, 9, (n, k)).astype(dtype), rng.integers(-9, 9, (k, m)).astype(dtype)  # exact in both dtypes
    for orders in itertools.product("CFS", repeat=2):
        found = _blas.product(in_order(a, orders[0]), in_order(b, orders[1]))
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, a @ b)


@pytest.mark.parametrize("order", ["C", "F", "S"])
@pytest.mark.parametrize(("n", "d"), [(9000, 7), (1, 4), (5, 1), (0, 3), (1100, 300), (3, 600)])
def test_gram_matrix_and_images(n, d, order):
    rng = np.random.default_rng(0)
    rows, lower = rng.integers(-9, 9, (n, d)) * 1.0, np.tril(rng.integers(-9, 9, (d, d))) * 1.0
    np.testing.assert_array_equal(_blas.gram(in_order(rows, order)), rows.T @ rows)
    images = _blas.squared_images(in_order(lower, order), in_order(rows, order))
    np.testing.assert_array_equal(images, np.square(rows @ lower.T).sum(axis=1))


def test_other_dtypes_are_converted_and_other_shapes_refused():
    """BLAS would take their memory for something else."""
    a, b = np.ones((4, 3), np.float32), np.ones((3, 2))
    assert _blas.product(a, b).dtype == np.float32
    assert _blas.product(b.T, a.T).dtype == np.float64
    np.testing.assert_array_equal(_blas.product(b.T, a.T), _blas.product(a, b).T)
    np.testing.assert_array_equal(_blas.product(a.astype(int), b[:, :1]), np.full((4, 1), 3.0))
    np.testing.assert_array_equal(_blas.gram(a), np.full((3, 3), 4.0))
    for call in (
        lambda: _blas.product(a, b.T),
        lambda: _blas.product(a, b.T[:, :1]),
        lambda: _blas.squared_images(b, a),
    ):
        with pytest.raises(ValueError, match="shapes"):
            call()


@pytest.mark.parametrize("d", [40, 600])
def test_the_number_of_threads_changes_no_bit(monkeypatch, d):
    rng = np.random.default_rng(0)
    rows, lower = rng.standard_normal((5001, d)), np.tril(rng.standard_normal((d, d)))
    monkeypatch.setattr(_blas, "_LEAST_WORK", 0)
    found = []
    for n_threads in (1, 2, 3):
        monkeypatch.setattr(_threads, "n_threads", lambda n_threads=n_threads: n_threads)
        found.append(
            [
                _blas.product(rows, lower),
                _blas.product(rows.T, rows),
                _blas.gram(rows),
                _blas.squared_images(lower, rows),
            ]
        )
    for other in found[1:]:
        for one, same in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(one, same)


def test_inputs_stay_as_they_are():
    rows, lower = np.ones((4, 3)), np.tril(np.ones((3, 3)))
    _blas.squared_images(lower, rows)
    np.testing.assert_array_equal(rows, 1.0)


@pytest.mark.parametrize("routine", ["product", "gram", "squared_images"])
def test_other_threads_go_on(routine):
    """The sums of `executor="threads"` would else be computed in turn."""
    rows = np.ones((6000, 1500))
    arguments = {"product": (rows, rows[:1500]), "gram": (rows,), "squared_images": (np.eye(1500), rows)}[routine]
    worker, ticks = threading.Thread(target=getattr(_blas, routine), args=arguments), 0
    with _blas.at_most_threads(1):
        worker.start()
        while worker.is_alive():
            time.sleep(0.001)
            ticks += 1
    assert ticks > 10, "BLAS holds the interpreter lock"


def test_the_fewest_threads_that_anybody_asks_for():
    def threads():
        return {library.num_threads for library in _blas._libraries()}

    before = threads()
    first, second = _blas.at_most_threads(2), _blas.at_most_threads(1)
    first.__enter__()
    second.__enter__()
    assert threads() == {1}
    first.__exit__(None, None, None)  # who asked first leaves first, as threads do
    assert threads() == {1}
    second.__exit__(None, None, None)
    assert threads() == before

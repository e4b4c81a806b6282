"""Matrix products against NumPy's, in every memory order; threads beside them; the number of threads of BLAS."""

import gc
import itertools
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from vips.core.exact import blas, rowwise, threads
from vips.core.exact import blas_threads as _blas_threads
from vips.core.exact.blas_threads import one_blas_thread
from vips.core.exact.rowwise import rowwise_product, rowwise_squares, strict_product


def in_order(array, order):
    """The array in that memory order; "S" is every second column of a wider array."""
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
        for multiply in (blas.product, rowwise_product, strict_product):
            product = multiply(in_order(a, orders[0]), in_order(b, orders[1]))
            assert product.dtype == dtype
            np.testing.assert_array_equal(product, a @ b)


@pytest.mark.parametrize("order", ["C", "F", "S"])
@pytest.mark.parametrize(("n", "d"), [(9000, 7), (1, 4), (5, 1), (0, 3), (1100, 300), (3, 600)])
def test_gram_matrix_and_images(n, d, order):
    rng = np.random.default_rng(0)
    rows, lower = rng.integers(-9, 9, (n, d)) * 1.0, np.tril(rng.integers(-9, 9, (d, d))) * 1.0
    np.testing.assert_array_equal(blas.gram(in_order(rows, order)), rows.T @ rows)
    before, upper = rows.copy(), np.triu(np.full((d, d), 7.0), 1)
    for triangle in (lower, lower + upper):  # the upper triangle is not read
        images = rowwise_squares(in_order(triangle, order), in_order(rows, order))
        np.testing.assert_array_equal(images, np.square(rows @ lower.T).sum(axis=1))
    np.testing.assert_array_equal(rows, before)  # inputs stay as they are


@pytest.mark.parametrize("n", [0, 1, 5, 128, 129, 300])
def test_lower_triangles_are_mirrored(n):
    lower = np.random.default_rng(n).normal(size=(n, n))
    expected = np.tril(lower) + np.tril(lower, -1).T
    np.testing.assert_array_equal(blas.mirrored(lower), expected)
    np.testing.assert_array_equal(lower, expected)


def test_other_dtypes_are_converted_and_other_shapes_refused():
    """BLAS would misread their memory."""
    a, b = np.ones((4, 3), np.float32), np.ones((3, 2))
    assert blas.product(a, b).dtype == np.float32
    assert blas.product(b.T, a.T).dtype == np.float64
    np.testing.assert_array_equal(blas.product(b.T, a.T), blas.product(a, b).T)
    np.testing.assert_array_equal(blas.product(a.astype(int), b[:, :1]), np.full((4, 1), 3.0))
    np.testing.assert_array_equal(blas.gram(a), np.full((3, 3), 4.0))
    for call in (
        lambda: blas.product(a, b.T),
        lambda: blas.product(a, b.T[:, :1]),
        lambda: rowwise_squares(b, a),
        lambda: rowwise_product(a, b.T),
        lambda: strict_product(a, b.T),
    ):
        with pytest.raises(ValueError, match="shapes"):
            call()


@pytest.mark.parametrize(
    ("n", "d"), [(5001, 40), (5001, 200), (65, 1500), (257, 300), (2049, 100), (20_001, 20), (9, 700)]
)
def test_the_number_of_threads_changes_no_bit(monkeypatch, n, d):
    rng = np.random.default_rng(0)
    rows, lower = rng.standard_normal((n, d)), np.tril(rng.standard_normal((d, d)))
    monkeypatch.setattr(blas, "_LEAST_WORK", 0)
    products = []
    for n_threads in (1, 2, 3, 16):
        monkeypatch.setattr(threads, "n_threads", lambda n_threads=n_threads: n_threads)
        pairs = (rows, lower[:, :80]), (rows, lower[:, :1]), (rows.T[:50], rows)
        several = [blas.product(*pair) for pair in pairs]
        products.append([*several, blas.gram(rows[:, :300]), rowwise_squares(lower, rows)])
    for other in products[1:]:
        for one, same in zip(products[0], other, strict=True):
            np.testing.assert_array_equal(one, same)


@pytest.mark.parametrize("routine", ["product", "gram", "rowwise_squares", "rowwise_product", "strict_product"])
def test_other_threads_go_on(routine):
    """Otherwise the sums of chunks would be computed one after the other."""
    rows = np.ones((3000, 1500))
    arguments = {"gram": (rows,), "rowwise_squares": (np.eye(1500), rows)}.get(routine, (rows, rows[:1500]))
    home = rowwise if hasattr(rowwise, routine) else blas
    worker, ticks = threading.Thread(target=getattr(home, routine), args=arguments), 0
    with one_blas_thread():
        worker.start()
        while worker.is_alive():
            time.sleep(0.001)
            ticks += 1
    assert ticks > 10, "BLAS holds the interpreter lock"


def blas_threads():
    return {library.num_threads for library in _blas_threads._libraries(of_threads=False)}


def in_another_thread(function):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


@pytest.fixture
def two_threads():
    """BLAS has two threads, whatever the environment says."""
    with threadpool_limits(2, user_api="blas"):
        if blas_threads() != {2}:
            pytest.skip("this BLAS has one thread")
        yield


def test_blocks_inside_a_block_change_nothing_and_large_factorisations_have_all_threads(two_threads):
    with one_blas_thread():
        with one_blas_thread():
            assert blas_threads() == {1}
        assert blas_threads() == {1}
        with blas.threads_for(np.eye(401)):
            assert blas_threads() == {2}
        assert blas_threads() == {1}
        with pytest.raises(ZeroDivisionError), blas.threads_for(np.eye(401)):
            raise ZeroDivisionError
        assert blas_threads() == {1}
        with blas.threads_for(np.eye(3)):
            assert blas_threads() == {1}
    assert blas_threads() == {2}


def stay(asked, left):
    with one_blas_thread():
        asked.set()
        left.wait(120.0)


def test_any_thread_may_ask_and_the_last_to_leave_restores(two_threads):
    """threadpoolctl would obey only the first of them."""
    blas.product(np.ones((300, 2)), np.ones((2, 3)))

    def inside():
        with one_blas_thread():
            return blas_threads()

    assert in_another_thread(inside) == {1}
    asked, left = threading.Event(), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        with one_blas_thread():
            other = pool.submit(stay, asked, left)
            assert asked.wait(120.0)
        assert blas_threads() == {1}
        left.set()
        other.result()
    assert blas_threads() == {2}

    def limited_by_its_user():
        with threadpool_limits(1, user_api="blas"):
            return blas_threads()

    assert in_another_thread(limited_by_its_user) == {1}


@pytest.mark.parametrize("on_leaving", [False, True])
@pytest.mark.parametrize("part", ["_set", "_apply"])
def test_an_interrupt_does_not_keep_the_limit(two_threads, monkeypatch, part, on_leaving):
    interrupts, do = ["Ctrl-C"], getattr(_blas_threads, part)

    def interrupted(*arguments):
        if interrupts and on_leaving != bool(_blas_threads._asking):
            raise KeyboardInterrupt(interrupts.pop())
        do(*arguments)

    monkeypatch.setattr(_blas_threads, part, interrupted)
    with pytest.raises(KeyboardInterrupt), one_blas_thread():
        assert blas_threads() == {1}
    assert not interrupts
    assert blas_threads() == {2}


def test_a_block_that_nobody_ends_is_ended_with_its_last_reference(two_threads):
    """As where a Ctrl-C arrives in the ``with`` statement itself."""
    block = one_blas_thread()
    block.__enter__()
    assert blas_threads() == {1}
    del block
    gc.collect()
    assert blas_threads() == {2}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_keeps_to_what_its_thread_asked_for(two_threads):
    asked, left = threading.Event(), threading.Event()

    def in_child(results):
        with one_blas_thread():
            pass
        results.put(blas_threads())

    context = multiprocessing.get_context("fork")
    results = context.Queue()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(stay, asked, left)
        assert asked.wait(120.0)
        child = context.Process(target=in_child, args=(results,))
        child.start()
        assert results.get(timeout=120) == {2}  # not what another thread of its parent asked for
        left.set()
    child.join(30)
    with one_blas_thread():
        child = context.Process(target=in_child, args=(results,))
        child.start()
        assert results.get(timeout=120) == {1}
        child.join(30)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_no_fork_while_another_thread_sets_the_number_of_threads(two_threads, monkeypatch):
    """OpenBLAS holds a lock meanwhile, which a child would never get."""
    is_setting, ended, set_number = False, threading.Event(), _blas_threads._set

    def slowly(library, n):
        nonlocal is_setting
        is_setting = True
        set_number(library, n)
        time.sleep(0.002)
        is_setting = False

    def ask():
        while not ended.is_set():
            with one_blas_thread():
                pass

    monkeypatch.setattr(_blas_threads, "_set", slowly)
    statuses = []
    with ThreadPoolExecutor(1) as pool:
        pool.submit(ask)
        for _ in range(10):
            time.sleep(0.003)
            child = os.fork()
            if child == 0:
                os._exit(is_setting)
            statuses.append(os.waitpid(child, 0)[1])
        ended.set()
    assert statuses == [0] * 10


FORKS = """
import multiprocessing, os, threading
import numpy as np
from vips.core.exact import blas
rows = np.ones((6000, 200))
blas.gram(rows[:10])
def multiply():
    while True:
        blas.gram(rows)
for _ in range(2):
    threading.Thread(target=multiply, daemon=True).start()
context = multiprocessing.get_context("fork")
for _ in range(5):
    child = context.Process(target=blas.gram, args=(rows,))
    child.start()
    child.join(60)
    assert child.exitcode == 0, child.exitcode
print("forked", flush=True)
os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_forks_while_another_thread_multiplies():
    """OpenBLAS ends its threads before a fork, and would wait forever for those that multiply."""
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "2", "NUMBA_NUM_THREADS": "2"}
    command = [sys.executable, "-W", "ignore", "-c", FORKS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.stdout == "forked\n", done.stderr


def test_only_what_blas_cannot_read_is_copied():
    table = np.arange(1000.0).reshape(4, 250)
    for piece, copied in (
        (table[:, :3], False),
        (table.T[:3], False),
        (table[:, ::2], True),
        (table[:, 1::2].T, True),
        (table[::-1], True),
    ):
        assert (blas.for_blas(piece, np.float64) is not piece) == copied
        other = np.arange(piece.shape[1] * 2.0).reshape(-1, 2)
        np.testing.assert_array_equal(blas.product(piece, other), piece @ other)

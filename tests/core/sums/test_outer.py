"""Outer products add what arrays of them add, and are as long."""

import numpy as np
import pytest
import scipy.sparse as sp

from tests.mutants import check_notices
from vips.core.exact.rowwise import row_norms
from vips.core.mechanism.clipping import clip_weights
from vips.core.mechanism.lattice import Lattice
from vips.core.sums import Block, DenseStatistics, Outer, Quadratic, Rows

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(7, 3)) * (RNG.random((7, 3)) < 0.7), RNG.normal(size=(7, 2))
WEIGHTS = np.array([0.3, 1.0, 0.0, 0.7, 0.2, 1.0, 0.9])


def like_arrays(form, array, block):
    """That norms, sums and rounded sums are those of an array of every record's statistic."""
    blocks, expected = {"name": block}, DenseStatistics({"name": array})
    lattice = Lattice.for_blocks(blocks, noise_multiplier=1.0, clip_norm=1.0)
    np.testing.assert_allclose(form.norms(blocks), expected.norms(blocks), rtol=1e-8)
    np.testing.assert_allclose(form.weighted_sum(WEIGHTS)["name"], expected.weighted_sum(WEIGHTS)["name"], atol=1e-12)
    rounded = (statistics.rounded_sum(WEIGHTS, blocks, lattice)["name"] for statistics in (form, expected))
    np.testing.assert_array_equal(*rounded)


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("factors", [Y, Y[:, 0]], ids=["two factors", "one factor"])
def test_products_are_those_of_arrays(factors, container):
    of_factors = factors.shape[1:]
    like_arrays(
        Outer("name", factors, container(X)),
        np.einsum("n...,ni->n...i", factors, X),
        Block((*of_factors, 3), scale=0.7),
    )
    squares = np.einsum("n...,ni,nj->n...ij", factors, X, X)
    block = Block((*of_factors, 3, 3), symmetric=True, scale=0.7)
    like_arrays(Quadratic("name", container(X), factors=factors), squares, block)


def test_a_product_of_two_rows_is_not_symmetric():
    with pytest.raises(ValueError, match="'name' sums f xᵀ, which is not symmetric"):
        Outer("name", X, X).norms({"name": Block((3, 3), symmetric=True)})


def check_no_declaration_makes_a_record_shorter():
    block = {"name": Block((2, 3))}
    form = Outer("name", Rows(2.0 * Y, Y), X)
    lengths = np.linalg.norm(np.einsum("ni,nj->nij", 2.0 * Y, X), axis=(1, 2))
    assert (form.norms(block) >= lengths).all(), "a record is longer than its norm"


def test_no_declaration_of_labels_makes_a_record_shorter(monkeypatch):
    check_no_declaration_makes_a_record_shorter()

    def declared_alone(patch):
        norms = lambda self: np.stack([row_norms(rows) for rows in self.of_labels or (self.values,)])  # noqa: E731
        patch.setattr(Rows, "norms", property(norms))

    check_notices(
        check_no_declaration_makes_a_record_shorter, declared_alone, monkeypatch, "a record is longer than its norm"
    )


def matrices_of_rows():
    """CSR matrices whose squares wrap, are coarse or vanish, or whose columns are repeated, by name."""
    repeated = sp.csr_array((np.array([3.0, 4.0, 5.0]), np.array([1, 1, 0]), np.array([0, 3])), shape=(1, 3))
    matrices = {
        "repeated": repeated,
        "tiny": sp.csr_array([[3e-170, 4e-170, 0.0]]),
        "large": sp.csr_array([[3e170, 0.0, 4e170]]),
    }
    for dtype in (np.uint8, np.int8, np.int16, np.int32, np.int64, np.float32):
        largest = 100.0 if np.dtype(dtype).itemsize == 1 else 30_000.0
        matrices[np.dtype(dtype).name] = sp.csr_array(np.array([[largest, 16, largest]], dtype))
    return matrices


@pytest.mark.filterwarnings("ignore:overflow encountered in square")
@pytest.mark.parametrize("name", matrices_of_rows())
def test_a_row_of_any_matrix_is_as_long_as_what_it_adds(name):
    """Dense rows are the ruler; a share that is clipped to 1 is 1."""
    rows = matrices_of_rows()[name]
    exact = rows.toarray().astype(np.float64)
    square = Block((3, 3), symmetric=True)
    for form, dense, block in (
        (Outer("x", np.ones(1), rows), Outer("x", np.ones(1), exact), Block((3,))),
        (Quadratic("x", rows), Quadratic("x", exact), square),
    ):
        norms = form.norms({"x": block})
        if name != "tiny" or block is not square:  # whose squares vanish from the sum, too
            np.testing.assert_allclose(norms, dense.norms({"x": block}), rtol=1e-7)
        share = form.weighted_sum(clip_weights(norms, 1.0))["x"]
        assert np.linalg.norm(share) <= 1.0 + 1e-9


@pytest.mark.parametrize("n_stored", [7, 8, 16, 128, 129])
def test_the_length_of_a_sparse_row_does_not_depend_on_its_place(n_stored):
    X = sp.csr_array(np.random.default_rng(n_stored).normal(size=(60, n_stored)))
    assert Rows(X).norms[0].tolist() == [Rows(X[[i]]).norms[0, 0] for i in range(60)]  # to the last bit

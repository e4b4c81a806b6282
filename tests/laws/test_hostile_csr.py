"""Sparse matrices whose arrays do not fit together: a clear error, or a defect of one record that costs at most one clip.

SciPy and compiled kernels trust the indices of a matrix. A test that crashes the process has found an unchecked index.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.laws import checks
from tests.laws.cases import BY_NAME
from vips import (
    BayesianLogisticRegression,
    DirichletMultinomial,
    LatentDirichletAllocation,
    PrivacyPlan,
    SigmoidBeliefNetwork,
)
from vips.data import InMemoryData, check_data

NAMES = ["lda", "lda float32, long documents, sparse topics", "lda resampled, public documents", "proportions sparse",
         "logistic sparse", "logistic sparse diagonal", "network sparse, normal prior"]  # fmt: skip
FAR = 50_000_000  # beyond any array of these tests by more than a page of memory


def csr(rows, width, dtype=np.float64, indices=np.int32) -> sp.csr_array:
    """Rows of ``(column, value)`` in the order in which they are given, whatever the columns are."""
    columns = np.array([column for row in rows for column, _ in row], indices)
    values = np.array([value for row in rows for _, value in row], dtype)
    X = sp.csr_array((len(rows), width), dtype=dtype)  # the constructor with arrays would check the columns
    X.data, X.indices = values, columns
    X.indptr = np.cumsum([0, *map(len, rows)]).astype(indices)
    return X


def meaning(row, width) -> np.ndarray | None:
    """The row as SciPy defines it: values of one column add up. None if a column does not exist."""
    if any(not 0 <= column < width for column, _ in row):
        return None
    dense = np.zeros(width)
    np.add.at(dense, [column for column, _ in row], [value for _, value in row])
    return dense


def entries(width):
    """Entries in columns that exist, with repetitions and in any order; a few in columns that do not exist."""
    there = st.integers(0, width - 1)
    hostile = st.sampled_from([-1, -2, -width, -FAR, -(2**31), width, width + 1, FAR, 2**31 - 1])
    column = st.one_of(there, there, there, there, there, there, there, hostile)
    return st.lists(st.tuples(column, st.sampled_from([0.0, 1.0, 1.0, 1.0, 2.0, 30.0])), max_size=8)


@pytest.mark.parametrize("noise", ["gaussian", "discrete"])
@pytest.mark.parametrize("name", NAMES)
def test_a_row_counts_for_what_it_means_or_for_nothing(name, noise):
    """This holds with any rows before and after it, in any chunks. A row moves the sum by at most one clip."""
    case = BY_NAME[name]
    model, plan, records, posterior = checks.prepared(case, 2, noise=noise)
    width, labelled = records.shape[1], hasattr(records, "y")

    def total(X, chunk_size):
        model.chunk_size = chunk_size
        data = replace(records, X=X, y=np.ones(X.shape[0])) if labelled else X
        return checks.clipped_sum(case, model, plan, data, posterior)

    @settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(entries(width), min_size=1, max_size=5), st.sampled_from([np.int32, np.int64]), st.integers(1, 6))
    def check(rows, indices, chunk_size):
        sums = total(csr(rows, width, indices=indices), chunk_size)
        dense = [counts for counts in (meaning(row, width) for row in rows) if counts is not None]
        expected = total(sp.csr_array(np.array(dense).reshape(-1, width)), 100)
        np.testing.assert_allclose(sums, expected, rtol=1e-9, atol=1e-9, err_msg="a row counts for something else")
        for i in range(len(rows)):
            others = total(csr(rows[:i] + rows[i + 1 :], width, indices=indices), chunk_size)
            if noise == "gaussian":
                moved = np.linalg.norm(sums - others)
                assert moved <= plan.clip_norm * (1.0 + 1e-9), "a row moved the sum by more than C"

    check()


# -- arrays that are not a matrix -------------------------------------------------------------------------------


def whole(form="csr"):
    return getattr(sp, f"{form}_array")(np.random.default_rng(0).poisson(1.0, (50, 8)).astype(float))


def with_pointer(place, value, form="csr"):
    X = whole(form)
    X.indptr[place] = value
    return X


def with_row(value, form):
    """A matrix with a wrong row number, in a format that stores the row of each entry."""
    X = whole(form)
    if form == "csc":
        X.indices[5] = value
    else:
        rows, columns = X.coords
        rows = rows.copy()
        rows[5] = value
        X.coords = rows, columns
    return X


def cut(name):
    X = whole()
    setattr(X, name, getattr(X, name)[:-3])
    return X


BROKEN = {
    "indptr decreases": (lambda: with_pointer(4, FAR), "indptr decreases"),
    "indptr is negative": (lambda: with_pointer(4, -FAR), "indptr decreases"),
    "indptr begins later": (lambda: with_pointer(0, 2), "index pointer should start with 0"),
    "indptr ends beyond": (lambda: with_pointer(-1, FAR), "Last value of index pointer"),
    "fewer indices": (lambda: cut("indices"), "indices and data should have the same size"),
    "less data": (lambda: cut("data"), "indices and data should have the same size"),
    "fewer pointers": (lambda: cut("indptr"), "index pointer size"),
    "csc: indptr decreases": (lambda: with_pointer(3, FAR, "csc"), "indptr decreases"),
    "csc: a row beyond": (lambda: with_row(FAR, "csc"), "a row that does not exist"),
    "csc: a negative row": (lambda: with_row(-FAR, "csc"), "a row that does not exist"),
    "coo: a row beyond": (lambda: with_row(FAR, "coo"), "a row that does not exist"),
    "coo: a negative row": (lambda: with_row(-1, "coo"), "a row that does not exist"),
    "bsr: indptr decreases": (lambda: with_pointer(3, FAR, "bsr"), "indptr decreases"),
}


@pytest.mark.parametrize("how", BROKEN)
def test_what_is_no_matrix_is_refused_before_a_value_is_read(how):
    make, says = BROKEN[how]
    plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1e-9, n_steps=1)  # the sample is empty
    topics, proportions = LatentDirichletAllocation(2, vocabulary=8, privacy=plan), DirichletMultinomial(privacy=plan)
    for fit in (check_data, topics.fit, proportions.fit, lambda X: proportions.fit(InMemoryData(X, partition_size=7))):
        with pytest.raises(ValueError, match=says):
            fit(make())
    with pytest.raises(ValueError, match=says):
        DirichletMultinomial().fit(make())


@pytest.mark.parametrize("form", ["coo", "bsr", "lil"])
def test_a_column_that_does_not_exist_is_one_records_defect_in_every_format(form):
    X = whole(form)
    if form == "coo":
        columns = X.coords[1].copy()
        columns[0] = FAR
        X.coords = X.coords[0], columns
    elif form == "bsr":
        X.indices[0] = FAR
    else:
        X.rows[0][0] = FAR
    plan = PrivacyPlan(noise_multiplier=1e-9, sampling="full", n_steps=1, clip_norm=1e3)
    posterior, expected = (DirichletMultinomial(privacy=plan).fit(data).last_posterior_ for data in (X, whole()[1:]))
    np.testing.assert_allclose(posterior.concentration, expected.concentration, atol=1e-4)


# -- predictions ------------------------------------------------------------------------------------------------


def predictions(name):
    """Methods of a fitted model that take records."""
    X = (whole() > 0).astype(float)
    if name == "lda":
        model = LatentDirichletAllocation(2, random_state=0).fit(X)
        return [model.transform, model.perplexity, lambda X: model.perplexity(X, kind="bound"), model.score]
    if name == "network":
        model = SigmoidBeliefNetwork(2, random_state=0).fit(X)
        return [model.transform]
    model = BayesianLogisticRegression().fit(X, np.arange(50) % 2)
    return [model.predict, model.predict_proba, lambda X: model.score(X, np.arange(50) % 2)]


@pytest.mark.parametrize("name", ["lda", "network", "logistic"])
def test_predictions_refuse_what_kernels_cannot_read(name):
    for predict in predictions(name):
        for column in (-1, -FAR, 8, FAR):
            X = (whole() > 0).astype(float)
            X.indices[3] = column
            with pytest.raises(ValueError, match="columns that do not exist"):
                predict(X)
        with pytest.raises(ValueError, match="a row that does not exist"):
            predict(with_row(FAR, "csc"))
        with pytest.raises(ValueError, match="indptr decreases"):
            predict(with_pointer(4, FAR))


@pytest.mark.parametrize(
    "model", [LatentDirichletAllocation(2), DirichletMultinomial()], ids=lambda m: type(m).__name__
)
@pytest.mark.parametrize("column", [-1, -FAR, 8, FAR])
def test_fits_that_are_not_private_refuse_them_too(model, column):
    X = whole()
    X.indices[3] = column
    with pytest.raises(ValueError, match="columns that do not exist"):
        model.fit(X)

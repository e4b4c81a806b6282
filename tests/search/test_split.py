"""Who is held out: by person, and by coins that no other record moves."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest, chi2

from tests.mutants import check_notices
from vips._secret_bits import secret_bits
from vips.search import private_search, split
from vips.search.split import Split, rows_of, split_rows

IDS = np.random.default_rng(0).integers(0, 300, 2000)


def check_sizes_are_those_of_independent_coins():
    for groups, n in ((None, 400), (np.arange(400), 400)):
        sizes = np.array([len(private_search.split_rows(n, groups, 0.3).held_out) for _ in range(400)])
        squares = ((sizes - 0.3 * n) ** 2).sum() / (n * 0.3 * 0.7)
        assert chi2.cdf(squares, len(sizes)) > 1e-10, (
            "numbers of held-out records vary too little for coins of their own"
        )
        assert chi2.sf(squares, len(sizes)) > 1e-10, "numbers of held-out records vary too much"


def test_sizes_are_those_of_independent_coins():
    check_sizes_are_those_of_independent_coins()


def check_persons_are_on_one_side():
    for ids in (IDS, IDS.astype(str), list(IDS.astype(str))):
        parts = private_search.split_rows(len(IDS), ids, 0.3)
        assert not set(IDS[parts.fitted]) & set(IDS[parts.held_out]), "a person is on both sides"
        assert len(parts.fitted) + len(parts.held_out) == len(IDS)
        assert len(np.unique(parts.held_out_persons)) == len(set(IDS[parts.held_out]))
        assert parts.held_out_persons.max() == len(set(IDS[parts.held_out])) - 1


def test_persons_are_on_one_side():
    check_persons_are_on_one_side()


def check_no_other_person_moves_a_side(monkeypatch):
    """Under one key, with and without the first person, and in another order."""
    monkeypatch.setattr(split, "secret_bytes", lambda n: b"k" * n)
    whole = private_search.split_rows(len(IDS), IDS, 0.3)
    held = set(IDS[whole.held_out])
    for kept in (np.flatnonzero(IDS[0] != IDS), np.arange(len(IDS))[::-1]):
        part = private_search.split_rows(len(kept), IDS[kept], 0.3)
        assert set(IDS[kept][part.held_out]) == held & set(IDS[kept]), "a person changes sides because of another one"


def test_no_other_person_moves_a_side(monkeypatch):
    check_no_other_person_moves_a_side(monkeypatch)


def test_rows_of_nobody_are_on_no_side():
    ids = np.array([1.0, np.nan, 2.0, 2.5, 1.0])
    for _ in range(20):
        parts = split_rows(5, ids, 0.5)
        assert sorted([*parts.fitted, *parts.held_out]) == [0, 2, 4]


def test_empty_tables_are_split():
    for groups in (None, np.array([], int), []):
        parts = split_rows(0, groups, 0.5)
        assert len(parts.fitted) == len(parts.held_out) == len(parts.held_out_persons) == 0
    parts = split_rows(2, np.array([np.nan, np.nan]), 0.5)
    assert len(parts.fitted) == len(parts.held_out) == 0


@pytest.mark.fresh_bits
def test_every_split_has_a_fresh_key():
    parts = [tuple(split_rows(200, groups, 0.5).held_out) for groups in (None, np.arange(200)) for _ in range(10)]
    assert len(set(parts)) == 20


def test_the_share_is_the_stated_one():
    held = sum(len(split_rows(1000, groups, 0.2).held_out) for groups in (None, np.arange(1000)) for _ in range(20))
    assert binomtest(held, 40_000, 0.2).pvalue > 1e-10


def test_rows_of_every_container():
    import pandas as pd
    import scipy.sparse as sp

    rows = np.array([2, 0])
    table = np.arange(6).reshape(3, 2)
    for each in (table, sp.csr_array(table), pd.DataFrame(table)):
        taken = rows_of(each, rows)
        assert type(taken) is type(each)
        assert np.array_equal(taken.toarray() if sp.issparse(taken) else np.asarray(taken), table[rows])
    assert rows_of(["a", "b", "c"], rows) == ["c", "a"]
    assert rows_of(None, rows) is None


def a_fixed_number_is_held_out(patch):
    def fixed(n_rows, groups, share):
        order = np.random.default_rng(secret_bits(128)).permutation(n_rows)
        held, fitted = np.sort(order[: int(share * n_rows)]), np.sort(order[int(share * n_rows) :])
        return Split(fitted, held, None, np.arange(len(held)))

    patch.setattr(private_search, "split_rows", fixed)


def persons_are_split_by_their_place(patch):
    original = split.ids_and_numbers

    def by_place(groups, n_rows):
        ids, numbers = original(groups, n_rows)
        return [str(i).encode() for i, _ in enumerate(ids)], numbers

    patch.setattr(split, "ids_and_numbers", by_place)


def rows_are_split_one_by_one(patch):
    original = split.split_rows

    def by_row(n_rows, groups, share):
        return original(n_rows, None, share)

    patch.setattr(private_search, "split_rows", by_row)


@pytest.mark.parametrize(
    ("mutant", "check", "says"),
    [
        (a_fixed_number_is_held_out, check_sizes_are_those_of_independent_coins, "vary too little"),
        (rows_are_split_one_by_one, check_persons_are_on_one_side, "on both sides"),
        (persons_are_split_by_their_place, check_no_other_person_moves_a_side, "because of another one"),
    ],
)
def test_mutants_are_noticed(mutant, check, says, monkeypatch):
    needs = (lambda: check(monkeypatch)) if check.__code__.co_argcount else check
    check_notices(needs, mutant, monkeypatch, says)

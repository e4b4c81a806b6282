"""What weighs nothing shapes no release: where the support of a release depends on records, only values that weigh are in it.

Noise so large that every value which gets any is released shows the support itself.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tests.mutants import check_notices
from vips import PrivacyBudget, PrivacyPlan, PrivateClassifier
from vips.classification import tables
from vips.data import ParquetTexts, regroup
from vips.preprocessing import PrivateCountVectorizer, TableEncoder, _learnt_columns
from vips.preprocessing._learnt_columns import MOST_CATEGORIES

N_ROWS = 100_000
PLAN = PrivacyPlan(noise_multiplier=5.0, sampling="full", n_steps=1)
SHORT = PrivacyPlan(noise_multiplier=5.0, sampling="full", n_steps=1, max_rows_per_group=3)


def table():
    """A hundred persons of one row; one of 10⁵ rows, each with a value of its own; as many rows of nobody."""
    values = ["ours"] * 100 + [f"hers{i}" for i in range(N_ROWS)] + [f"nobody{i}" for i in range(N_ROWS)]
    ids = np.r_[np.arange(100.0), np.full(N_ROWS, 100.0), np.full(N_ROWS, np.nan)]
    return pd.DataFrame({"word": values}), ids


def everything_drawn_is_released(patch):
    add_noise = PrivacyPlan.add_noise
    patch.setattr(
        PrivacyPlan, "add_noise",
        lambda self, total, *arguments: {k: 1e6 + np.abs(v) for k, v in add_noise(self, total, *arguments).items()},
    )  # fmt: skip


def words_of_encoder(X, ids, plan):
    return TableEncoder({"word": "category"}, privacy=plan, threshold_delta=1e-3).fit(X, groups=ids).columns_["word"]


def words_of_classifier(X, ids, plan, y=None):
    y = np.arange(len(X)) % 2 if y is None else y
    model = PrivateClassifier({"word": "category"}, privacy=PrivacyBudget(1.0, 1e-6), n_steps=1).fit(X, y, groups=ids)
    return model.tables_["word"].cells.categories


def words_of_texts(X, ids, plan):
    vectorizer = PrivateCountVectorizer(privacy=plan, threshold_delta=1e-3, max_words=MOST_CATEGORIES)
    return vectorizer.fit(X["word"], groups=ids).vocabulary


def check_only_values_that_weigh_are_in_the_support(words_of, plan, most):
    X, ids = table()
    with pytest.MonkeyPatch.context() as patch:
        everything_drawn_is_released(patch)
        words = set(words_of(X, ids, plan)) - {"(other)", "(missing)"}
    assert "ours" in words
    hers = sum(word.startswith("hers") for word in words)
    assert 1 <= hers <= most, f"{hers} values of one person can be released"
    assert not any(word.startswith("nobody") for word in words), "values of nobody can be released"


def check_rows_of_no_class_are_not_in_the_support():
    X = pd.DataFrame({"word": ["a", "b", "classless"] * 10})
    with pytest.MonkeyPatch.context() as patch:
        everything_drawn_is_released(patch)
        assert set(words_of_classifier(X, None, PLAN, np.array([0, 1, 7] * 10))) == {"a", "b"}, (
            "a row of no class is in the support"
        )


CASES = [
    (words_of_encoder, PLAN, MOST_CATEGORIES),
    (words_of_encoder, SHORT, 3),
    (words_of_classifier, PLAN, MOST_CATEGORIES),
    (words_of_texts, PLAN, 2 * MOST_CATEGORIES),  # in two rounds
    (words_of_texts, SHORT, 2 * 3),
]


@pytest.mark.parametrize(("words_of", "plan", "most"), CASES)
def test_only_values_that_weigh_are_in_the_support(words_of, plan, most):
    check_only_values_that_weigh_are_in_the_support(words_of, plan, most)


def test_rows_of_no_class_are_not_in_the_support():
    check_rows_of_no_class_are_not_in_the_support()


def test_texts_of_a_source_that_weigh_nothing_are_not_in_the_support(tmp_path):
    X, ids = table()
    X.assign(person=ids).to_parquet(tmp_path / "texts.parquet")
    source = regroup(ParquetTexts(tmp_path / "texts.parquet", "word"), by="person", to=tmp_path / "persons")
    vectorizer = PrivateCountVectorizer(privacy=SHORT, threshold_delta=1e-3)
    with pytest.MonkeyPatch.context() as patch:
        everything_drawn_is_released(patch)
        words = set(vectorizer.fit(source).vocabulary)
    assert "ours" in words
    assert sum(word.startswith("hers") for word in words) <= 2 * 3
    assert not any(word.startswith("nobody") for word in words)


def every_cell_gets_noise(patch):
    for module in (_learnt_columns, tables):
        patch.setattr(module, "cells_that_get_noise", lambda totals: np.arange(totals.shape[-1]))


def test_noise_on_every_category_is_noticed(monkeypatch):
    def check():
        check_only_values_that_weigh_are_in_the_support(words_of_encoder, PLAN, MOST_CATEGORIES)

    check_notices(check, every_cell_gets_noise, monkeypatch, "can be released")


def test_noise_on_categories_of_no_class_is_noticed(monkeypatch):
    check_notices(check_rows_of_no_class_are_not_in_the_support, every_cell_gets_noise, monkeypatch, "of no class")

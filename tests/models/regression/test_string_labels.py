"""Labels in words in a private fit: converted one by one, without an error that depends on a record."""

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import DataConversionWarning

import vips
from vips import BayesianLogisticRegression, PrivacyPlan
from vips.data import InMemoryData, NpySource
from vips.data._labels import label_codes

PLAN = PrivacyPlan(noise_multiplier=1e-3, sampling="full", n_steps=5)


def table(n=3000):
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, (n, 3))
    return X, X[:, 0] + rng.normal(0.0, 0.1, n) > 0.0


def model(**settings):
    return BayesianLogisticRegression(**{"privacy": PLAN, "max_norm": 1.0, "classes": ["no", "yes"]} | settings)


def words(y):
    return np.where(y, "yes", "no")


@pytest.mark.parametrize("blank", [None, np.nan, pd.NA])
@pytest.mark.parametrize("dtype", [object, "str", "string", "category"])
def test_an_ordinary_fit_names_labels_that_are_missing(blank, dtype):
    X, y = table(20)
    labels = pd.Series(words(y), dtype=dtype)
    labels[3] = blank
    with pytest.raises(ValueError, match="Labels in y are missing"):
        model(privacy=None).fit(X, labels)


@pytest.mark.parametrize(
    "container",
    [
        np.asarray,
        lambda y: y.astype(object),
        lambda y: pd.Series(y, dtype=object),
        lambda y: pd.Series(y, dtype="string"),
        lambda y: pd.Series(pd.Categorical(y, categories=["other", "no", "yes"])),
    ],
)
def test_words_give_the_fit_of_numbers(container):
    X, y = table()
    fitted = model().fit(X, container(words(y)))
    assert fitted.classes_.tolist() == ["no", "yes"]
    assert set(fitted.predict(X)) == {"no", "yes"}
    assert fitted.score(X, words(y)) > 0.8
    numbers = model(classes=None).fit(X, y)
    np.testing.assert_allclose(fitted.coef_, numbers.coef_, rtol=0.05)


def test_other_values_are_defective_records():
    class Evil(str):
        def __hash__(self):
            raise RuntimeError("name@example.org")

    X, y = table(1000)
    labels = words(y).astype(object)
    odd = [None, np.nan, 1, "Yes", b"yes", pd.NA, Evil("yes"), ("yes",), "\ud800"]
    labels[: len(odd)] = odd
    codes = label_codes(labels, ["no", "yes"])
    assert np.isnan(codes[: len(odd)]).all()
    assert np.isin(codes[len(odd) :], [0.0, 1.0]).all()
    assert label_codes(["ne\u0301", "n\u00e9"], ["oui", "n\u00e9"]).tolist() == [1.0, 1.0], (
        "an accent behind its letter"
    )
    fitted, without = model().fit(X, labels), model().fit(X[len(odd) :], labels[len(odd) :])
    np.testing.assert_allclose(fitted.coef_, without.coef_, atol=0.1)


def test_three_classes_in_words(tmp_path):
    X, y = table()
    labels = np.where(y, "high", np.where(X[:, 1] > 0.0, "low", "middle"))
    fitted = model(classes=["low", "middle", "high"]).fit(X, labels, groups=np.arange(len(X)))
    assert fitted.score(X, labels) > 0.6
    for odd in ("High", None):  # a share of records with such labels would be a wrong number in silence
        with pytest.raises(ValueError, match="none of the classes of this fit"):
            fitted.score(X[:2], [odd, "low"])
    fitted.save(tmp_path / "model.vips")
    np.testing.assert_array_equal(vips.load(tmp_path / "model.vips").predict(X), fitted.predict(X))


def test_errors_come_from_public_facts(tmp_path):
    X, y = table(50)
    for wrong in (y, y.astype(float), pd.Series(y, dtype="boolean")):
        with pytest.raises(TypeError, match="`classes` are strings, but y has dtype"):
            model().fit(X, wrong)
    assert model().fit(X, list(words(y))).score(X, words(y)) > 0.5
    with pytest.warns(DataConversionWarning):  # a column of words is read as words
        assert model().fit(X, words(y)[:, None]).score(X, words(y)) > 0.5
    with pytest.raises(TypeError, match="A private fit needs numbers"):
        model(classes=None).fit(X, words(y))
    with pytest.raises(ValueError, match="not bytes"):
        model(classes=[b"no", b"yes"]).fit(X, words(y))
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    with pytest.raises(TypeError, match="data sources hold labels as numbers"):
        model().fit(NpySource(tmp_path / "X.npy", tmp_path / "y.npy"))
    assert model().fit(InMemoryData(X, words(y))).classes_.tolist() == ["no", "yes"]

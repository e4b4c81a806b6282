"""The last of two declared classes, as written, is "yes", wherever a coefficient is read; scikit-learn's order is sorted."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import get_scorer

import vips
from vips import (
    BayesianLogisticRegression,
    MixedLogisticRegression,
    PrivacyBudget,
    PrivateClassifier,
    compare,
    evaluate,
)
from vips.__main__ import main
from vips.preprocessing import TableEncoder, make_private_pipeline

RNG = np.random.default_rng(0)
N = 4_000
X = RNG.uniform(-1.0, 1.0, (N, 1))
IS_LAST = RNG.random(N) < 1.0 / (1.0 + np.exp(-3.0 * X[:, 0]))
WRITTEN = [("control", "case"), ("case", "control"), (7, -2), (True, False)]
BUDGET = PrivacyBudget(8.0, 1e-5)


def labels(classes):
    return np.asarray(classes)[IS_LAST.astype(int)]


@pytest.mark.parametrize("classes", WRITTEN, ids=str)
@pytest.mark.parametrize("privacy", [None, BUDGET], ids=["ordinary", "private"])
def test_a_coefficient_is_that_of_the_class_written_last(classes, privacy, tmp_path):
    y = labels(classes)
    model = BayesianLogisticRegression(classes=list(classes), privacy=privacy, max_norm=1.0).fit(X, y)
    assert model.coef_[0, 0] > 2.0
    assert model.summary().loc["x0", "mean"] > 2.0
    assert model.summary().index.name == f"log odds of y = {classes[1]!r}"
    assert f'and {classes[1]} (the last one is "yes")' in str(model.privacy_) or privacy is None
    # scikit-learn's conventions and scorers
    assert model.classes_.tolist() == sorted(classes)
    yes = model.predict_proba(X)[:, model.classes_.tolist().index(classes[1])]
    assert np.corrcoef(yes, X[:, 0])[0, 1] > 0.9
    np.testing.assert_array_equal(model.decision_function(X) > 0.0, model.predict(X) == model.classes_[1])
    assert model.score(X, y) > 0.7
    for scorer, least in (("roc_auc", 0.8), ("neg_log_loss", -0.6), ("average_precision", 0.75)):
        if scorer == "average_precision" and model.classes_[1] not in (1, True):
            continue  # it asks for a positive label of strings
        assert get_scorer(scorer)(model, X, y) > least
    assert evaluate(model, X, y, privacy=BUDGET).auc.value > 0.75
    assert repr(classes[1]) in str(evaluate(model, X, y, privacy=BUDGET))
    model.save(tmp_path / "model")
    again = vips.load(tmp_path / "model")
    np.testing.assert_allclose(again.predict_proba(X), model.predict_proba(X))
    assert again.summary().equals(model.summary())


def test_effects_of_persons_and_tables_of_classes_keep_the_order():
    y, persons = labels(("control", "case")), np.arange(N) // 4
    mixed = MixedLogisticRegression(classes=["control", "case"], max_norm=1.0).fit(X, y, groups=persons)
    assert np.ravel(mixed.coef_)[0] > 2.0
    assert np.corrcoef(mixed.predict_proba(X)[:, 0], X[:, 0])[0, 1] > 0.9  # "case" comes first in sorted order
    with pytest.raises(ValueError, match="none of the classes of this fit"):
        mixed.score(X, np.where(IS_LAST, "Case", "control"))
    table = pd.DataFrame({"ward": np.where(X[:, 0] > 0.0, "A", "B")})
    classifier = PrivateClassifier(columns={"ward": ["A", "B"]}, classes=["control", "case"], privacy=BUDGET).fit(
        table, y
    )
    assert abs(classifier.class_counts_[0] - IS_LAST.sum()) < 200.0
    assert classifier.score(table, y) > 0.65
    assert classifier[-1].coef_[0, 0] > 0.0


def test_three_classes_are_broken_off_in_their_order():
    noisy = X[:, 0] + 0.4 * RNG.normal(size=N)
    y = np.where(noisy > 0.3, "high", np.where(noisy > -0.3, "middle", "low"))
    model = BayesianLogisticRegression(classes=["low", "middle", "high"]).fit(X, y)
    assert list(dict.fromkeys(model.summary().index.get_level_values(0))) == ["low", "middle"]
    assert model.classes_.tolist() == ["high", "low", "middle"]
    assert model.score(X, y) > 0.5
    assert get_scorer("neg_log_loss")(model, X, y) > -1.0


def test_fits_of_two_orders_are_not_compared():
    y = labels(("control", "case"))
    ours = BayesianLogisticRegression(classes=["control", "case"], privacy=BUDGET, max_norm=1.0).fit(X, y)
    theirs = BayesianLogisticRegression(classes=["case", "control"], max_norm=1.0).fit(X, y)
    with pytest.raises(ValueError, match="another order"):
        compare(ours, theirs)


def test_python_and_the_shell_agree(tmp_path, capsys):
    y = labels(("control", "case"))
    table = pd.DataFrame({"age": 50.0 + 30.0 * X[:, 0]})
    pipeline = make_private_pipeline(
        TableEncoder({"age": (20, 80)}), BayesianLogisticRegression(classes=["control", "case"]), privacy=BUDGET
    ).fit(table, y)
    table.assign(y=y).to_csv(tmp_path / "t.csv", index=False)
    options = "--model logistic --target y --classes control,case --epsilon 8 --delta 1e-5 --column age=20:80"
    assert not main(["fit", str(tmp_path / "t.csv"), "--save", str(tmp_path / "m.vips"), *options.split()])
    shown = capsys.readouterr().out
    assert "log odds of y = 'case'" in shown
    in_shell = float(next(line for line in shown.splitlines() if line.startswith("age")).split()[1])
    assert abs(in_shell - pipeline.summary().loc["age", "mean"]) < 0.03
    assert in_shell > 0.05
    out = tmp_path / "p.csv"
    assert not main(["predict", str(tmp_path / "m.vips"), str(tmp_path / "t.csv"), "--out", str(out)])
    assert np.corrcoef(pd.read_csv(out)["P(case)"], X[:, 0])[0, 1] > 0.9

"""Ordinary fits that look for their limit by Newton's steps: it is that of textbook variational Bayes."""

import warnings
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit

from tests.mutants import check_notices
from vips import BayesianBinomialRegression, BayesianLogisticRegression, BayesianNegativeBinomialRegression, PrivacyPlan
from vips.expfam import Gaussian
from vips.models.regression import limit

RNG = np.random.default_rng(0)
N = 800
X = RNG.normal(size=(N, 3)) * [1.0, 10.0, 0.1] + [5.0, 0.0, -1.0]
PSI = X @ [0.8, -0.05, 4.0] + 0.5
YES = (RNG.random(N) < expit(PSI)).astype(int)
COUNTS = RNG.poisson(np.exp(0.3 * PSI))
Logistic = BayesianLogisticRegression
KINDS = {
    "logistic": (Logistic, X, YES),
    "few records": (Logistic, X[:60], YES[:60]),
    "sparse": (Logistic, sp.csr_array(X * (RNG.random(X.shape) < 0.3)), YES),
    "no intercept": (partial(Logistic, fit_intercept=False), X, YES),
    "scaled rows": (partial(Logistic, max_norm=2.0), X, YES),
    "three classes": (Logistic, X, YES + (RNG.random(N) < 0.3)),
    "given prior": (partial(Logistic, prior=Gaussian(np.full(4, 0.1), np.eye(4))), X, YES),
    "rare": (Logistic, X, (RNG.random(N) < 0.04 * expit(X[:, 1])).astype(int)),
    "binomial": (partial(BayesianBinomialRegression, n_trials=6), X, RNG.binomial(6, expit(PSI))),
    "counts": (partial(BayesianNegativeBinomialRegression, dispersion=2.0), X, COUNTS),
}


def check_reaches_the_limit(name, **settings):
    """One step is enough, and textbook steps end at the same posterior."""
    make, rows, y = KINDS[name]
    fitted = make().fit(rows, y, **settings)
    assert fitted.last_posterior_.step == 1, "more than one step"
    enough = PrivacyPlan.non_private(sampling_rate=1.0, n_steps=300 if name == "rare" else 60)
    textbook = make(privacy=enough).fit(rows, y, **settings)
    ours, theirs = fitted.last_posterior_, textbook.last_posterior_
    for one, other in ((ours.mean, theirs.mean), (ours.around.precision, theirs.around.precision)):
        assert np.abs(one - other).max() <= 2e-8 * np.abs(other).max(), "another limit"


@pytest.mark.parametrize("name", KINDS)
def test_an_ordinary_fit_ends_at_the_fixed_point_of_variational_bayes(name):
    check_reaches_the_limit(name)


def test_weights_count():
    check_reaches_the_limit("few records", sample_weight=RNG.integers(1, 4, 60).astype(float))


def test_rows_need_not_be_kept(monkeypatch):
    from vips.models.regression import contract

    kept = Logistic().fit(X, YES).last_posterior_
    monkeypatch.setattr(contract, "_MOST_KEPT_ROWS", 0)
    np.testing.assert_array_equal(Logistic().fit(X, YES).last_posterior_.mean, kept.mean)


def test_where_columns_separate_labels_a_fit_takes_textbook_steps():
    rows = X[:30]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = Logistic().fit(rows, rows[:, 0] > 5.0)
        plan = PrivacyPlan.non_private(sampling_rate=1.0, n_steps=fitted.last_posterior_.step)
        steps = Logistic(privacy=plan).fit(rows, rows[:, 0] > 5.0)
    assert fitted.last_posterior_.step > 100
    np.testing.assert_array_equal(fitted.last_posterior_.mean, steps.last_posterior_.mean)


def without_variances(patch):
    """The mode of the posterior, near which variational Bayes ends."""
    patch.setattr(limit, "variances", lambda rows, *others: np.zeros((rows.shape[0], 1)))


def stops_early(patch):
    patch.setattr(limit, "_NEAR", 1.0)


@pytest.mark.parametrize(
    ("mutant", "says"), [(without_variances, "more than one step"), (stops_early, "more than one step")]
)
def test_mutant_is_noticed(mutant, says, monkeypatch):
    check_notices(lambda: check_reaches_the_limit("few records"), mutant, monkeypatch, says)

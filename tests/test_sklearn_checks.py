"""scikit-learn's own conformance suite, on every public estimator, without noise and private.

The suite uses tables of many widths, and labels of any kind. Where an estimator needs these declared beforehand, a subclass
below declares them for each table, and changes nothing else.
"""

import warnings
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.utils import estimator_checks, get_tags
from sklearn.utils.estimator_checks import estimator_checks_generator

from vips import (
    BayesianBinomialRegression,
    BayesianGaussianMixture,
    BayesianLinearRegression,
    BayesianLogisticRegression,
    BayesianNegativeBinomialRegression,
    DirichletMultinomial,
    FactorAnalysis,
    LatentClassAnalysis,
    LatentDirichletAllocation,
    MixedLatentClassAnalysis,
    MixedLogisticRegression,
    MixedNegativeBinomialRegression,
    PrivacyPlan,
    PrivateClassifier,
    ProbabilisticPCA,
    SigmoidBeliefNetwork,
)
from vips.data._columns import as_table
from vips.models.components.categories import Categories
from vips.models.components.declarations import Column
from vips.models.components.numbers import Numbers
from vips.preprocessing import TableEncoder

pytestmark = pytest.mark.usefixtures("few_iterations", "one_thread")


class AnyVocabulary(LatentDirichletAllocation):
    """The vocabulary is the number of columns, although the fit is private."""

    def check_parameters(self):
        with pytest.raises(ValueError, match="`vocabulary` is required"):  # the last check
            super().check_parameters()


class AnyClasses(BayesianLogisticRegression):
    """The classes are those of y, although the fit is private."""

    def records_of(self, X, y):
        data = super().records_of(X, y)
        labels = np.unique(y)
        if 2 <= len(labels) <= 10:
            self.classes_ = labels
        return data


class AnyCategories(LatentClassAnalysis):
    """Every column has ten codes, although the fit is private."""

    def check_parameters(self):
        with pytest.raises(ValueError, match="`categories` is required"):  # the last check
            super().check_parameters()

    def _declared(self):
        return [Column(Categories, range(10))] * self.n_features_in_


class AnyColumns(MixedLatentClassAnalysis):
    """Every column of the table is a number within the same bounds."""

    def _declared(self):
        return [Column(Numbers, (-100.0, 100.0))] * self.n_features_in_

    def check_parameters(self):
        """The number of columns is not known yet."""


class OfCounts:
    """Turns the suite's labels, of any size, into small counts."""

    def fit(self, X, y=None, **arguments):
        return super().fit(X, _counts(y), **arguments)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # R² of labels that were rounded
        return tags


class Binomial(OfCounts, BayesianBinomialRegression):
    pass


class NegativeBinomial(OfCounts, BayesianNegativeBinomialRegression):
    pass


class MixedCounts(OfCounts, MixedNegativeBinomialRegression):
    pass


def _counts(y):
    labels = np.asarray(y)
    if labels.dtype.kind not in "iuf" or not np.isfinite(labels).all():
        return y
    return np.clip(np.rint(labels), 0, 5).astype(labels.dtype)


class Repeated(TableEncoder):
    """The same declaration for every column of the table."""

    @contextmanager
    def for_each_column(self, X):
        once = self.columns
        self.columns = once * as_table(X).shape[1]
        try:
            yield
        finally:
            self.columns = once

    def fit(self, X, y=None):
        with self.for_each_column(X):
            return super().fit(X)

    def transform(self, X):
        with self.for_each_column(X):
            return super().transform(X)


NO_NOISE = PrivacyPlan.non_private(n_steps=3)


def plan(n_steps=3):
    """A plan with little noise, the same each time, so that checks can compare two fits."""
    return PrivacyPlan(noise_multiplier=1e-3, sampling_rate=1.0, n_steps=n_steps, reproducible_noise=True)


def logistic(**settings):
    return AnyClasses(privacy=plan(), max_norm=10.0, random_state=0, **settings)


# Why a check cannot hold -> what its error says. If a listed check holds after all, its test fails.
NO_VALUE_RAISES = "no value of a record raises: the record counts for nothing"
NO_ROWS = "zero rows are ordinary input: whether there is a record is private"
NO_CLASSIFIER = "the check takes what has predict_proba for a classifier"
NO_LISTS = "lists are refused: their dtype depends on their values"
NO_OBJECTS = "object dtype is refused: its conversion depends on the values"
NO_STRINGS = "labels that are strings are refused: their conversion depends on their values"
ONLY_CODES = "codes are whole numbers from 0 on; -1 is a missing answer"
NO_ORDER = "components have no order: weights and repeated rows begin at other ones"
NO_WEIGHTS = "where a largest weight is declared, weights are passed"
WIDE = (
    "probabilities average over a posterior that is wide where columns separate the labels: not in the order of means"
)
WORDS = {
    WIDE: "rrays are not (almost )?equal", NO_ORDER: "is not equivalent to fitting with removed or repeated",
    NO_WEIGHTS: "`max_weight` is declared",
    ONLY_CODES: "raised ValueError unexpectedly|X must hold codes",
    NO_VALUE_RAISES: r"Did not raise|it does\s+not raise the right|doesn't check|should have raised|should raise",
    NO_ROWS: "does not raise", NO_CLASSIFIER: "fail gracefully on sparse", NO_LISTS: r"got (list|_NotAnArray)",
    NO_OBJECTS: r"dtype (is )?object", NO_STRINGS: "y has dtype <U",
}  # fmt: skip

# Name of a check -> why it cannot hold.
PRIVATE = {
    "check_dtype_object": NO_OBJECTS,
    "check_estimators_empty_data_messages": NO_ROWS,
    "check_estimators_nan_inf": NO_VALUE_RAISES,
}
SPARSE_WITH_SHARES = dict.fromkeys(("check_estimator_sparse_array", "check_estimator_sparse_matrix"), NO_CLASSIFIER)
PRIVATE_COUNTS = PRIVATE | {
    "check_positive_only_tag_during_fit": NO_VALUE_RAISES,
    "check_fit_non_negative": NO_VALUE_RAISES,
}
PRIVATE_TRANSFORMER = PRIVATE | {"check_transformer_data_not_an_array": NO_LISTS}
PRIVATE_CLASSIFIER = PRIVATE | {
    "check_classifier_data_not_an_array": NO_LISTS,
    "check_classifiers_train": NO_LISTS,
    "check_classifiers_classes": NO_STRINGS,
    "check_classifiers_regression_target": NO_VALUE_RAISES,
    "check_supervised_y_no_nan": NO_VALUE_RAISES,
}
PRIVATE_TWO_CLASSES = PRIVATE_CLASSIFIER | {"check_classifier_not_supporting_multiclass": NO_VALUE_RAISES}
PRIVATE_REGRESSOR = PRIVATE | {
    "check_regressor_data_not_an_array": NO_LISTS,
    "check_regressors_train": NO_LISTS,
    "check_supervised_y_no_nan": NO_VALUE_RAISES,
}
PRIVATE_WEIGHTS = {
    "check_all_zero_sample_weights_error": NO_VALUE_RAISES,
    "check_sample_weights_list": NO_LISTS,
    "check_sample_weights_not_an_array": NO_LISTS,
    "check_sample_weight_equivalence_on_dense_data": NO_WEIGHTS,
    "check_sample_weight_equivalence_on_sparse_data": NO_WEIGHTS,
}
OF_TABLES = {"check_estimators_empty_data_messages": NO_ROWS, "check_transformer_data_not_an_array": NO_LISTS}

WITH_CODES = "check_positive_only_tag_during_fit", "check_sample_weight_equivalence_on_dense_data"
CODES = dict.fromkeys(WITH_CODES, ONLY_CODES)

# Estimators, and the checks that they are expected to fail.
WITHOUT_NOISE = [
    (LatentDirichletAllocation(2, privacy=NO_NOISE), {}),
    (LatentDirichletAllocation(2, privacy=NO_NOISE, inference="em"), {}),
    (BayesianLogisticRegression(privacy=NO_NOISE), {}),
    (BayesianLogisticRegression(privacy=NO_NOISE, covariance="diagonal"), {}),
    (Binomial(n_trials=5, privacy=NO_NOISE), {}),
    (NegativeBinomial(privacy=NO_NOISE), {}),
    (MixedLogisticRegression(), {}),
    (MixedCounts(), {}),
    (BayesianLinearRegression(), {}),
    (ProbabilisticPCA(1), {}),
    (FactorAnalysis(1), {}),
    (BayesianLinearRegression(penalty="ard", fit_intercept=False), {}),
    (SigmoidBeliefNetwork(2, privacy=NO_NOISE, binarize=0.0), {}),
    (DirichletMultinomial(), {}),
    (BayesianGaussianMixture(2, privacy=NO_NOISE, random_state=0), SPARSE_WITH_SHARES),
    (BayesianGaussianMixture(2, covariance_type="diag", dof=4.0, privacy=NO_NOISE), SPARSE_WITH_SHARES),
    (LatentClassAnalysis(2, privacy=NO_NOISE, random_state=0), CODES),
    (AnyColumns(2, privacy=NO_NOISE, random_state=0), {"check_sample_weight_equivalence_on_dense_data": NO_ORDER}),
    (Repeated([(-5, 5)]), OF_TABLES),
    (Repeated([[0, 1, 2]]), OF_TABLES),
    (PrivateClassifier(), dict.fromkeys(("check_classifier_data_not_an_array", "check_classifiers_train"), NO_LISTS)),
]
WITH_NOISE = [
    (AnyVocabulary(2, privacy=plan(), random_state=0), PRIVATE_TRANSFORMER | PRIVATE_COUNTS),
    (logistic(), PRIVATE_CLASSIFIER | {"check_decision_proba_consistency": WIDE}),
    (logistic(prior=100.0), PRIVATE_CLASSIFIER),
    (logistic(covariance="diagonal"), PRIVATE_CLASSIFIER),
    (Binomial(n_trials=5, privacy=plan(), max_norm=10.0), PRIVATE_REGRESSOR),
    (NegativeBinomial(max_count=5, privacy=plan(), max_norm=10.0), PRIVATE_REGRESSOR),
    (MixedLogisticRegression(privacy=plan(6), max_norm=10.0, classes=[0, 1]), PRIVATE_TWO_CLASSES),
    (MixedCounts(max_count=5, privacy=plan(6), max_norm=10.0), PRIVATE_REGRESSOR),
    (ProbabilisticPCA(1, privacy=plan(1), max_norm=100.0), PRIVATE_TRANSFORMER),
    (FactorAnalysis(1, privacy=plan(1), max_norm=100.0), PRIVATE_TRANSFORMER),
    (BayesianLinearRegression(privacy=plan(1), max_norm=100.0, target_range=(-500.0, 500.0)), PRIVATE_REGRESSOR),
    (BayesianGaussianMixture(2, privacy=plan(), max_norm=100.0), PRIVATE | SPARSE_WITH_SHARES),
    (SigmoidBeliefNetwork(2, privacy=plan(), binarize=0.0), PRIVATE_TRANSFORMER),
    (DirichletMultinomial(privacy=plan(1)), PRIVATE_COUNTS),
    (AnyColumns(2, privacy=plan(), random_state=0), {"check_estimators_empty_data_messages": NO_ROWS}),
    (AnyCategories(2, privacy=plan(), random_state=0), {"check_estimators_empty_data_messages": NO_ROWS}),
]
CASES = WITHOUT_NOISE + WITH_NOISE
# Of the others, which run the code of these, every change runs what depends on a class's arguments, tags and attributes alone.
IN_FULL = {  # one of each family
    "AnyClasses", "AnyVocabulary", "BayesianGaussianMixture", "BayesianLinearRegression", "DirichletMultinomial", "Repeated",
}  # fmt: skip
OF_A_CLASS = {
    "check_dont_overwrite_parameters", "check_estimator_cloneable", "check_estimator_repr", "check_estimator_tags_renamed",
    "check_estimators_overwrite_params", "check_estimators_unfitted",
    "check_get_params_invariance", "check_mixin_order", "check_n_features_in", "check_n_features_in_after_fitting",
    "check_no_attributes_set_in_init", "check_parameters_default_constructible", "check_set_params", "check_valid_tag_types",
}  # fmt: skip


LONG = {"check_estimators_dtypes", "check_estimators_pickle"}  # of mixtures: seconds for what regressions show
NO_VALUE_DECIDES = {"check_estimators_nan_inf", "check_estimators_empty_data_messages"}


def marks(name: str, estimator, check: str):
    if "private" in name and check in NO_VALUE_DECIDES:
        return ()
    is_whole = ("private" in name or isinstance(estimator, Repeated)) and type(estimator).__name__ in IN_FULL
    if isinstance(estimator, BayesianGaussianMixture) and check in LONG:
        return pytest.mark.slow
    if isinstance(estimator, AnyClasses) and (estimator.prior, estimator.covariance) != (None, "full"):
        is_whole = check == "check_decision_proba_consistency"  # one other prior, and another covariance
    return () if is_whole or check in OF_A_CLASS else pytest.mark.slow


def _names():
    """Names of the cases: number, whether private, and class."""
    for number, (estimator, _) in enumerate(CASES):
        noise = " private" if number >= len(WITHOUT_NOISE) else ""
        yield f"{number}{noise} {type(estimator).__name__}"


def _checks():
    """What ``parametrize_with_checks`` yields, under shorter names. A private fit with weights declares the largest."""
    for name, (estimator, expected) in zip(_names(), CASES, strict=True):
        for _, check in estimator_checks_generator(estimator):
            check_name, case, reasons = check.func.__name__, estimator, expected
            if "sample_weight" in check_name and "private" in name:
                case, reasons = with_largest(estimator), expected | PRIVATE_WEIGHTS
            mark = marks(name, estimator, check_name)
            reason = reasons.get(check_name)
            identity = f"{name}-{check_name}{' fails: ' + reason if reason else ''}"
            yield pytest.param(case, check, reason, id=identity, marks=mark)


def with_largest(estimator):
    return clone(estimator).set_params(privacy=replace(estimator.privacy, max_weight=10.0))


@pytest.mark.parametrize(("estimator", "check", "reason"), list(_checks()))
def test_scikit_learn_conventions(estimator, check, reason):
    """A check holds, or fails as stated above: the name of the test then ends in what is different."""
    if reason is None:
        check(estimator)
        return
    with pytest.raises((AssertionError, TypeError, ValueError), match=WORDS[reason]):
        check(estimator)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "estimator", [estimator for estimator, _ in WITHOUT_NOISE], ids=list(_names())[: len(WITHOUT_NOISE)]
)
def test_an_ordinary_fit_to_a_frame_does_not_forget_the_names_of_its_columns(estimator):
    X = pd.DataFrame(np.random.default_rng(0).integers(0, 2, (60, 3)), columns=["a", "b", "c"])
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "X does not have valid feature names")
        clone(estimator).fit(X, X["a"].to_numpy())


def test_checks_of_a_class_are_some():
    assert {check.func.__name__ for _, check in estimator_checks_generator(Binomial())} >= OF_A_CLASS


@pytest.mark.parametrize(("estimator", "expected"), CASES, ids=list(_names()))
def test_expected_failures_are_checks_that_are_run(estimator, expected):
    run = {check.func.__name__ for _, check in estimator_checks_generator(estimator)}
    assert not {name for name in expected if hasattr(estimator_checks, name)} - run


def test_only_noise_that_is_not_seeded_is_called_non_deterministic():
    noise = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=1)
    seeded = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=1, reproducible_noise=True)
    for privacy, expected in ((noise, True), (seeded, False), (NO_NOISE, False), (None, False)):
        assert get_tags(DirichletMultinomial(privacy=privacy)).non_deterministic is expected

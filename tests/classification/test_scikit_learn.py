"""scikit-learn's own conformance suite, on the classifier without noise; see tests/test_sklearn_checks.py."""

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

from tests.test_sklearn_checks import NO_LISTS, WORDS
from vips import PrivateClassifier

EXPECTED = {"check_classifier_data_not_an_array", "check_classifiers_train"}  # NO_LISTS
CHECKS = [
    pytest.param(case, check, id=check.func.__name__) for case, check in estimator_checks_generator(PrivateClassifier())
]


@pytest.mark.slow
@pytest.mark.parametrize(("estimator", "check"), CHECKS)
def test_scikit_learn_conventions(estimator, check):
    if check.func.__name__ not in EXPECTED:
        check(estimator)
        return
    with pytest.raises(TypeError, match=WORDS[NO_LISTS]):
        check(estimator)

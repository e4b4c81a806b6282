"""scikit-learn's own conformance suite. The estimator is the non-private one: a private fit needs a declared vocabulary,
while the suite feeds tables of many widths; what differs in a private fit is tested in ``tests/laws``."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from vips import BayesianLogisticRegression, LatentDirichletAllocation, PrivacyPlan, SigmoidBeliefNetwork

ESTIMATORS = [
    LatentDirichletAllocation(2, privacy=PrivacyPlan.non_private(n_steps=3)),
    BayesianLogisticRegression(),
    BayesianLogisticRegression(covariance="diagonal"),
    SigmoidBeliefNetwork(2, privacy=PrivacyPlan.non_private(n_steps=3), binarize=0.0),
]

# Name of a check -> why it cannot hold. Nothing at present.
EXPECTED_FAILURES: dict[str, str] = {}


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=lambda estimator: EXPECTED_FAILURES)
def test_scikit_learn_conventions(estimator, check):
    check(estimator)

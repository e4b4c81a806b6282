"""Models, records and posteriors that amplify rounding errors: strong couplings, nearly equal topics, near-ties."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from tests.laws import checks
from tests.laws.cases import CASES, Case
from vips import (
    BayesianGaussianMixture,
    BayesianLogisticRegression,
    Block,
    ConjugateExponentialModel,
    DenseStatistics,
    LatentClassAnalysis,
    LatentDirichletAllocation,
    PrivacyPlan,
    Records,
    SigmoidBeliefNetwork,
)
from vips.expfam import Dirichlet
from vips.models.components.categories import Answers
from vips.models.components.columns import Posteriors
from vips.models.topics.statistics import TopicPosterior

PLAN = PrivacyPlan(noise_multiplier=1.0, sampling="full", n_steps=2)
LARGEST = 600


def votes(scores):
    """One row for each record. Its norm tells which centre was chosen."""
    return np.diag(np.arange(1, 9) / 8.0)[np.argmax(scores, axis=1)]


class NearestCentre(ConjugateExponentialModel):
    """A user's model with a decision: it counts the records nearest to each of eight centres, some of them nearly equal."""

    def __init__(self, privacy=None, random_state=None):
        self.privacy, self.random_state = privacy, random_state

    def blocks(self):
        return {"count": Block((8,))}

    def initial(self, rng):
        return {"count": np.zeros(8)}

    def expected_statistics(self, records, posterior):
        scores = records @ posterior["centres"]
        return DenseStatistics({"count": votes(scores)})

    def to_posterior(self, average, noise_std, previous):
        return {"centres": average["count"]}

    def max_record_norm(self):
        return 1.0


def centres(width, rng):
    """Pairs of centres whose scores differ by rounding alone."""
    first = rng.normal(size=(width, 4))
    second = np.nextafter(first, np.where(rng.random(first.shape) < 0.5, np.inf, -np.inf))
    return {"centres": np.hstack([first, second])}


def strong_network(model, width, rng):
    """Couplings so strong that the sweeps do not converge."""
    start = model.start(rng)[1]
    weights = 5.0 * rng.normal(size=(width, model.n_components))
    means = type(start.weights)(weights, start.weights.precision)
    return replace(start, weights=means, coupling=0.2 * weights.T @ weights, plug_in=True)


def amplifying(case: Case):
    """Model, records and posterior of a case of the laws; a diagonal network gets strong couplings."""
    model, _, records, posterior = checks.prepared(case, LARGEST)
    if isinstance(model, SigmoidBeliefNetwork) and model.covariance == "diagonal":
        posterior = strong_network(model, records.shape[1], np.random.default_rng(1))
    return model, records, posterior


def network(n_hidden, n_visible=16, **settings):
    def make():
        model = SigmoidBeliefNetwork(n_hidden, privacy=PLAN, **settings)
        model.n_features_in_ = n_visible
        rng = np.random.default_rng(0)
        return model, (rng.random((LARGEST, n_visible)) < 0.5) * 1.0, strong_network(model, n_visible, rng)

    return make


def topics(dtype):
    def make():
        model = LatentDirichletAllocation(16, vocabulary=40, privacy=PLAN, dtype=dtype, mean_change_tol=1e-5)
        model.n_features_in_ = 40
        rng = np.random.default_rng(0)
        alike = 2.0 + 1e-6 * rng.random((16, 40))
        return model, sp.csr_array(rng.poisson(0.6, (LARGEST, 40))), TopicPosterior(alike)

    return make


def regression(width, phase="scores", **settings):
    def make():
        model = BayesianLogisticRegression(privacy=replace(PLAN, clip_norm=1.0), max_norm=2.0, **settings)
        rng = np.random.default_rng(0)
        records = Records(rng.normal(size=(LARGEST, width)), rng.integers(0, 2, LARGEST).astype(float))
        case = Case("", lambda **_: model, lambda n, rng: records, {}, np.zeros(width), 0.3, phase=phase)
        return model, records, checks.prepared(case, LARGEST)[3]

    return make


def clouds(kind, width, n_components=5, reach=1.0, **settings):
    """Thin components, nearly at the same place, whose coordinates magnify the rounding of a record."""

    def make():
        model = BayesianGaussianMixture(n_components, covariance_type=kind, max_norm=9.0, privacy=PLAN, **settings)
        model.n_features_in_ = width
        rng = np.random.default_rng(0)
        first = model.start(rng)[1]
        mean = np.linspace(0.1, 1.0, width) + 1e-7 * rng.normal(size=first.mean.shape)
        factor = 1e-5 * (first.factor + 0.3 * np.tril(rng.normal(size=first.factor.shape)))
        if kind in ("diag", "spherical"):
            factor = 1e-5 * (1.0 + rng.random(first.factor.shape))
        strong = replace(
            first, mean=mean, factor=factor, n_active=n_components, mean_precision=np.full(n_components, 1e3)
        )
        return model, mean[0] + reach * 1e-5 * rng.normal(size=(LARGEST, width)), strong

    return make


def classes():
    """Classes that hardly differ, of many columns."""
    levels = [3] * 70
    model = LatentClassAnalysis(7, categories=levels, privacy=PLAN)
    model.n_features_in_ = len(levels)
    rng = np.random.default_rng(0)
    answers = Answers(Dirichlet(2.0 + 1e-6 * rng.random((7, n_levels))) for n_levels in levels)
    _, posterior = model.start(rng)
    posterior = replace(posterior, weights=Dirichlet(np.ones(7)), columns=Posteriors(answers=answers))
    return model, rng.integers(-1, 3, (LARGEST, len(levels))), posterior


def decisions():
    model = NearestCentre(privacy=PLAN)
    model.n_features_in_ = 50
    rng = np.random.default_rng(0)
    return model, rng.normal(size=(LARGEST, 50)), centres(50, rng)


STRONG = {
    "network 16 x 400": network(400),
    "network 16 x 30, single precision": network(30, dtype=np.float32),
    "network 16 x 17, full covariance": network(17, covariance="full"),
    "topics alike": topics(np.float64),
    "topics alike, single precision": topics(np.float32),
    "regression of 70 columns": regression(70),
    "regression of 70 columns, paper": regression(70, phase="", statistics="paper"),
    "regression of 33 columns, diagonal": regression(33, phase="", covariance="diagonal"),
    "regression of three classes": regression(9, classes=(0, 1, 2)),
    "thin clouds": clouds("full", 19),
    "thin clouds, tied, Student-t": clouds("tied", 6, dof="learn"),
    "two thin clouds, tied": clouds("tied", 2, n_components=2, reach=8.0),
    "thin clouds, diagonal": clouds("diag", 33),
    "thin clouds, spherical": clouds("spherical", 3, dof=2.0),
    "classes alike": classes,
    "nearest centre": decisions,
}
MAKERS = {case.name: lambda case=case: amplifying(case) for case in CASES} | STRONG

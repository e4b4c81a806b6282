"""Small comparisons for tests of the report, with names that try to be markup."""

from dataclasses import replace

import numpy as np
import pandas as pd

from tests.known_bits import cached
from vips import (
    BayesianLogisticRegression,
    LatentDirichletAllocation,
    PrivacyPlan,
    PrivacyReport,
    SigmoidBeliefNetwork,
    compare,
)
from vips.datasets import load_digits_binary, make_lda_corpus
from vips.privacy import Release
from vips.tools.comparison.curve import PRIVATE, PUBLIC, UtilityCurve
from vips.tools.comparison.page import templates

PLAN = PrivacyPlan.from_epsilon(epsilon=2.0, delta=1e-5, sampling_rate=1.0, n_steps=10)
HOSTILE = (
    "<script>alert(1)</script>", '"><img src=x onerror=alert(2)>', "</title></style></svg></script><b>",
    "a & b ' $\\frac{1}{$", "\u202eevil \u0000",
)  # fmt: skip
REPORT = PrivacyReport(
    (Release(what="fit", plan=replace(PLAN, clip_norm=0.3), released=("totals",)),), unit="one row of X with its label"
)
PUBLIC_CURVE = UtilityCurve((0.1, 1.0), 1e-5, np.array([[0.6, 0.7], [0.8, 0.82]]), None, PUBLIC)
PRIVATE_CURVE = UtilityCurve(
    (0.1, 1.0), 1e-5, np.array([[0.6, 0.7], [0.8, 0.82]]), np.array([0.9, 0.91]), PRIVATE, (REPORT,)
)


def labelled(n=1500, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-0.5, 0.5, (n, len(HOSTILE)))
    y = rng.random(n) < 1.0 / (1.0 + np.exp(-X @ [4.0, -4.0, 2.0, 0.0, 1.0]))
    return pd.DataFrame(X, columns=HOSTILE), pd.Series(y.astype(int))


def logistic(plan, **settings):
    return plain() if plan is None else _fitted(plan, **settings)


@cached
def plain():
    return _fitted(None)


def _fitted(plan, **settings):
    return BayesianLogisticRegression(privacy=plan, max_norm=1.0, **settings).fit(*labelled())


@cached
def regression():
    """A comparison with test records."""
    return compare(logistic(PLAN), logistic(None), *labelled(200, seed=1), n_bootstrap=20)


@cached
def released():
    """A comparison of two private fits: nothing in it is unprotected."""
    return compare(logistic(PLAN), logistic(PLAN))


@cached
def topics():
    words = [*HOSTILE, *(f"word{i}" for i in range(35))]
    documents = make_lda_corpus(n_documents=400, n_topics=3, n_words=40, document_length=40, random_state=0).counts
    models = (
        LatentDirichletAllocation(3, vocabulary=words, privacy=plan, random_state=0).fit(documents)
        for plan in (PLAN, None)
    )
    return compare(*models)


@cached
def network():
    digits = load_digits_binary().data[:300]
    return compare(*(SigmoidBeliefNetwork(4, privacy=plan, random_state=0).fit(digits) for plan in (PLAN, None)))


def section(name, view):
    """A section of the report."""
    sources = {"private": "released", "baseline": "released", "both": "released"}
    return str(getattr(templates().get_template("report_sections.html").module, name)(view, sources))

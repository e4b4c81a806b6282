"""Showing a model, and completing its names, computes nothing."""

import inspect

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.externals._numpydoc.docscrape import NumpyDocString

import vips
from tests.known_bits import cached
from vips import BayesianLogisticRegression, DirichletMultinomial, LatentDirichletAllocation, PrivacyPlan
from vips.preprocessing import PrivateCountVectorizer, TableEncoder

PLAN = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=2)
X = np.random.default_rng(0).integers(0, 2, (30, 2)).astype(float)
MODELS = {
    "logistic": cached(lambda: BayesianLogisticRegression(privacy=PLAN, max_norm=2.0).fit(X, X[:, 0])),
    "topics": cached(lambda: LatentDirichletAllocation(2, vocabulary=2, privacy=PLAN).fit(X)),
    "proportions": cached(lambda: DirichletMultinomial(privacy=PLAN).fit(X)),
}
SHOWN = {
    "repr": repr,
    "str": str,
    "html": lambda model: model._repr_html_(),
    "mime": lambda model: model._repr_mimebundle_(),
    "dir": dir,
    "vars": vars,
    "signature": lambda model: inspect.signature(model.fit),
    "static members": lambda model: [inspect.getattr_static(model, name) for name in dir(model)],
    "report": lambda model: (repr(model.privacy_), model.privacy_._repr_html_()),
    "posterior": lambda model: repr(model.last_posterior_),
}


@pytest.mark.parametrize("show", SHOWN.values(), ids=SHOWN)
@pytest.mark.parametrize("fitted", MODELS.values(), ids=MODELS)
def test_nothing_is_computed(fitted, show, monkeypatch):
    model = fitted()

    def computes(self):
        raise AssertionError("the noise-aware posterior was computed")

    monkeypatch.setattr(type(model), "to_noise_aware_posterior", computes)
    before = set(model._computed)  # what the fit itself has read of its releases
    show(model)
    assert set(model._computed) == before
    assert "posterior_" in dir(model)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "estimator",
    [cls for name in vips.__all__ if inspect.isclass(cls := getattr(vips, name)) and issubclass(cls, BaseEstimator)]
    + [TableEncoder, PrivateCountVectorizer],
    ids=lambda cls: cls.__name__,
)
def test_notebooks_read_every_docstring_without_a_warning(estimator):
    NumpyDocString(inspect.getdoc(estimator) or "")

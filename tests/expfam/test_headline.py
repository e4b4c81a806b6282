"""Every posterior shows itself on one line, without its arrays."""

import pickle

import numpy as np
import pytest

from vips import SigmoidBeliefNetwork
from vips.expfam import (
    DiagonalGaussian,
    Dirichlet,
    Draws,
    Gamma,
    Gaussian,
    GeneralizedInverseGaussian,
    PolyaGamma,
    ScaledDirichlet,
)
from vips.models.regression.posterior import CoefficientPosterior, DiagonalCoefficientPosterior
from vips.models.topics.statistics import TopicPosterior

LARGE = np.linspace(1.0, 2.0, 600).reshape(20, 30)
FAMILIES = [
    Dirichlet(LARGE), TopicPosterior(LARGE), ScaledDirichlet(LARGE, LARGE), Draws(np.stack([LARGE, LARGE + 1.0])),
    Gamma(LARGE, LARGE), GeneralizedInverseGaussian(LARGE, LARGE), PolyaGamma(LARGE, LARGE),
    DiagonalGaussian(LARGE, LARGE), DiagonalCoefficientPosterior(LARGE, LARGE, np.ones(20), np.ones(20)),
    Gaussian(LARGE, np.tile(np.eye(30), (20, 1, 1))),
    CoefficientPosterior(LARGE, np.tile(np.eye(30), (20, 1, 1)), np.ones(20), np.ones(20)),
]  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: type(family).__name__)
def test_headline_numbers_are_shown_and_a_pickle_does_not_tell_which_moments_were_computed(family):
    sent = pickle.dumps(family)
    copy = pickle.loads(sent)
    caches = [name for name in dir(type(copy)) if type(getattr(type(copy), name, None)).__name__ == "cached_property"]
    for name in (*caches, "mean"):
        getattr(copy, name)
    assert pickle.dumps(copy) == pickle.dumps(pickle.loads(sent))
    shown = repr(family)
    assert shown.startswith(f"<{type(family).__name__} of shape (20, 30): mean ")
    assert len(shown) < 120
    assert "array" not in shown


def test_equal_numbers_are_shown_once_and_networks_show_their_units():
    assert repr(Gamma(np.full(3, 4.0), 2.0)) == "<Gamma of shape (3,): mean 2; std 1>"
    network = SigmoidBeliefNetwork(2, random_state=0).fit(np.eye(4)[np.arange(40) % 4])
    shown = repr(network.posterior_)
    assert shown.startswith("<NetworkPosterior of 4 visible and 2 hidden units after ")
    assert len(shown) < 160

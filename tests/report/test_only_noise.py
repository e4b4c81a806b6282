"""A fit whose totals are noise says so: in `signal`, in the statement, on the certificate and in a comparison."""

import json
import warnings

import numpy as np
import pytest
from randomgen import AESCounter
from scipy.stats import binomtest, chi2, norm
from sklearn.feature_extraction.text import TfidfTransformer

from tests.mutants import check_notices
from vips import (
    BayesianLogisticRegression,
    DirichletMultinomial,
    LatentDirichletAllocation,
    PrivacyPlan,
    PrivacyReport,
    compare,
    load,
)
from vips.core.mechanism.noise import Randomness
from vips.core.sums import Block
from vips.datasets import make_lda_corpus
from vips.report import only_noise
from vips.report.only_noise import LEVEL, NO_SIGNAL, blocks_of_noise

PLAN = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-6, sampling="full", n_steps=5)


@pytest.fixture
def known_noise(monkeypatch):
    """The noise of a private fit, from keys of this test: its results do not change from run to run."""
    monkeypatch.setattr(Randomness, "noise_bits", lambda self, step: AESCounter(key=1000 + step))


def topics(documents, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of floats
        return LatentDirichletAllocation(3, vocabulary=40, privacy=PLAN, random_state=0, **settings).fit(documents)


def counts():
    return make_lda_corpus(3000, n_topics=3, n_words=40, document_length=30, random_state=0).counts


@pytest.mark.slow
def test_topics_of_tf_idf_say_that_nothing_was_learnt(tmp_path, known_noise):
    counted = topics(counts())
    weighted = topics(TfidfTransformer().fit_transform(counts()))  # every document is defective
    assert counted.signal()["topic_word"] > 0.9
    assert counted.privacy_.only_noise is False
    assert weighted.privacy_.only_noise is True, "no signal is called signal"
    assert set(weighted.signal().values()) == {0.0}
    assert f"Signal: {NO_SIGNAL}." in str(weighted.privacy_).splitlines()
    pages = {}
    for name, fit in (("weighted", weighted), ("counted", counted)):
        fit.privacy_.to_html(tmp_path / "certificate.html")
        fit.to_html(tmp_path / "topics.html")
        comparison = compare(fit, counted)
        comparison.to_html(tmp_path / "report.html")
        pages[name] = [
            (tmp_path / f"{page}.html").read_text(encoding="utf-8") for page in ("certificate", "topics", "report")
        ]
        pages[name] += [str(comparison), comparison.to_json(), fit.privacy_._repr_html_(), fit.privacy_.to_json()]
        fit.save(tmp_path / "saved")
        assert load(tmp_path / "saved").privacy_.only_noise == fit.privacy_.only_noise
        assert PrivacyReport.from_json(fit.privacy_.to_json()) == fit.privacy_
    assert all(NO_SIGNAL in page for page in pages["weighted"][:-1])
    assert json.loads(pages["weighted"][-1])["only_noise"] is True
    assert not any(NO_SIGNAL in page for page in pages["counted"])


@pytest.mark.parametrize("settings", [{"noise": "discrete"}, {"sampling": "poisson", "sampling_rate": 0.3}])
def test_other_models_and_noises_say_so_too(settings, known_noise):
    plan = PrivacyPlan(**({"noise_multiplier": 2.0, "sampling": "full", "n_steps": 3} | settings))
    nothing = np.full((500, 6), np.nan)
    fits = [DirichletMultinomial(privacy=plan).fit(nothing)]
    model = BayesianLogisticRegression(privacy=plan, max_norm=1.0, classes=[0, 1])
    for X, y in ((nothing, np.zeros(500)), (np.zeros((0, 6)), np.zeros(0))):
        fits.append(model.fit(X, y))
        assert fits[-1].privacy_.only_noise
    votes = np.eye(6)[np.random.default_rng(0).integers(0, 6, 500)]
    assert not DirichletMultinomial(privacy=plan).fit(votes).privacy_.only_noise
    assert fits[0].privacy_.only_noise
    X = np.random.default_rng(0).uniform(-0.4, 0.4, (500, 6))
    assert not model.fit(X, (X[:, 0] > 0).astype(int)).privacy_.only_noise


def test_a_fit_has_signal_if_one_block_has_or_without_noise():
    """The other may hold residuals at the fitted parameters, say."""
    blocks = {"a": Block((3,)), "b": Block((3,))}
    totals, std = {"a": np.ones(3), "b": np.full(3, 9.0)}, {"a": 1.0, "b": 1.0}
    assert blocks_of_noise(blocks, totals, std) == ("a",)
    assert not only_noise.is_only_noise(blocks, totals, std)
    assert only_noise.is_only_noise(blocks, totals, {"a": 1.0, "b": 9.0})
    assert not only_noise.is_only_noise(blocks, totals, {"a": 0.0, "b": 0.0})
    without_noise = DirichletMultinomial().fit(np.eye(3))
    assert without_noise.privacy_.only_noise is False
    assert without_noise.signal() == {}


def check_noise_is_taken_for_signal_as_seldom_as_stated(n=8_000):
    """Blocks are of three kinds; and both tests have the levels of SciPy's distributions."""
    rng = np.random.default_rng(5)
    for shape, symmetric in (((7,), False), ((), False), ((4, 4), True)):
        size = 10 if symmetric else int(np.prod(shape))
        block, missed = {"a": Block(shape, symmetric)}, 0
        for entries in rng.normal(0.0, 3.0, (n, size)):
            value = entries.reshape(shape) if not symmetric else np.zeros(shape)
            if symmetric:
                value[np.triu_indices(4)] = entries * np.where(np.eye(4), 1.0, 0.5**0.5)[np.triu_indices(4)]
                value = value + np.triu(value, 1).T
            missed += not blocks_of_noise(block, {"a": value}, {"a": 3.0})
        level = binomtest(missed, n, LEVEL).pvalue
        assert level > 1e-7, f"noise is taken for signal {missed} times of {n}"


@pytest.mark.slow
def test_noise_is_taken_for_signal_as_seldom_as_stated():
    check_noise_is_taken_for_signal_as_seldom_as_stated()


def test_many_small_totals_and_a_single_large_one_are_signal():
    block, std = {"a": Block((400,))}, {"a": 2.0}
    squares, largest = chi2.isf(LEVEL / 2.0, 400), norm.isf(LEVEL / 2.0 / 400 / 2.0)
    for factor, is_noise in ((1.01, False), (0.99, True)):
        many = np.full(400, 2.0 * np.sqrt(factor * squares / 400))
        one = np.zeros(400)
        one[7] = -2.0 * largest * factor
        for value in (many, one):
            assert blocks_of_noise(block, {"a": value}, std) == (("a",) if is_noise else ())


def the_noise_is_taken_for_smaller(patch):
    original = only_noise.entries_of_noise
    patch.setattr(only_noise, "entries_of_noise", lambda value, std, symmetric: original(value, 0.8 * std, symmetric))


def everything_is_signal(patch):
    patch.setattr(only_noise, "_is_noise", lambda values, stds, *_: False)


def test_mutants_are_noticed(monkeypatch, tmp_path, known_noise):
    with monkeypatch.context() as patch:
        check = check_noise_is_taken_for_signal_as_seldom_as_stated
        check_notices(check, the_noise_is_taken_for_smaller, patch, "times of")
    check_notices(
        lambda: test_topics_of_tf_idf_say_that_nothing_was_learnt(tmp_path, None),
        everything_is_signal,
        monkeypatch,
        "no signal is",
    )

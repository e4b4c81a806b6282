"""Models of sequences in comparisons, reports and files."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

import vips
from vips import BayesianGaussianMixture, CategoricalHMM, PrivacyBudget, PrivacyPlan, privacy_utility_curve
from vips.data import Sequences, write_sequences

RNG = np.random.default_rng(0)
SIDES = (RNG.random((600, 12)) < 0.2).cumsum(axis=1) % 2
DATA = Sequences.from_list(list(2 * SIDES + RNG.integers(0, 2, SIDES.shape)))
TRAIN, TEST = DATA[:500], DATA[500:]
PLAN = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=30)
MODEL = CategoricalHMM(2, n_symbols=4, privacy=PLAN, random_state=0)


@pytest.fixture(scope="module")
def fits():
    return clone(MODEL).fit(TRAIN), clone(MODEL).set_params(privacy=None).fit(TRAIN)


@pytest.mark.slow
def test_fits_are_compared_on_held_out_sequences(fits, tmp_path):
    for test in (TEST, [sequence[:, 0] for sequence in TEST]):
        comparison = vips.compare(*fits, test)
        row = comparison["log likelihood per step (higher is better)"]
        for fitted, score in zip(fits, (row.private, row.baseline), strict=True):
            assert score == pytest.approx(fitted.score_samples(TEST).sum() / len(TEST.values))
    comparison.to_html(tmp_path / "report.html")
    assert "moves[0, 1]" in (tmp_path / "report.html").read_text()


def test_utility_falls_with_noise():
    curve = privacy_utility_curve(MODEL, TRAIN, [0.05, 20.0], delta=1e-5, X_public_test=TEST, n_repeats=1)
    assert curve.scores[0, 0] < curve.scores[1, 0] < 0.0


def test_certificates_and_files(fits, tmp_path):
    fitted, _ = fits
    fitted.save(tmp_path / "model.vips")
    loaded = vips.load(tmp_path / "model.vips")
    assert loaded.score_samples(TEST).sum() == fitted.score_samples(TEST).sum()
    fitted.privacy_.to_html(tmp_path / "certificate.html")
    assert "one sequence" in (tmp_path / "certificate.html").read_text()


@pytest.mark.slow
def test_plans_state_steps_of_chains():
    assert "60 steps" in str(vips.plan_for(MODEL, privacy=PrivacyBudget(1.0, 1e-6), n_records=5_000))


def test_sources_are_for_fits_and_sequences_for_models_of_them(fits, tmp_path):
    source = write_sequences(TEST, tmp_path / "test")
    with pytest.raises(TypeError, match=r"source\.chunks"):
        fits[0].predict(source)
    for data in (TEST, source):
        with pytest.raises(TypeError, match="takes rows of a table"):
            BayesianGaussianMixture(2, max_norm=1.0, privacy=PLAN).fit(data)
    with pytest.raises(TypeError, match="takes sequences, got NpySource"):
        fits[0].fit(vips.data.NpySource(tmp_path / "test" / "00000.values.npy"))

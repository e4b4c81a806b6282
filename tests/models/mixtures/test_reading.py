"""What readers of classes see: labels, summary, profiles as a picture."""

from __future__ import annotations

import matplotlib
import numpy as np
import pandas as pd
import pytest

from tests.models.mixtures.tables import LEVELS, answers
from vips import LatentClassAnalysis, PrivacyPlan, load

CATEGORIES = {
    "sex": ["f", "m"],
    "area": ["$north$", "ea\x1bst", "west"],
    "children": [0, 1, 2, 5],
    "member": [False, True],
}
PLAN = PrivacyPlan(noise_multiplier=30.0, sampling_rate=1.0, n_steps=30, reproducible_noise=True)


def frame_of(codes):
    pairs = zip(CATEGORIES.items(), codes.T, strict=True)
    return pd.DataFrame({name: np.array(listed, dtype=object)[column] for (name, listed), column in pairs})


def without_classes(n, seed=0):
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.choice(size, n, p=rng.dirichlet(np.ones(size))) for size in LEVELS])


def fitted(codes, n_components=5, privacy=PLAN, **settings):
    settings = {"categories": LEVELS, "random_state": 0} | settings
    return LatentClassAnalysis(n_components, privacy=privacy, **settings).fit(codes)


@pytest.fixture(scope="module")
def model():
    codes = answers(8000, seed=1, missing=0.0)
    return fitted(frame_of(codes), categories=CATEGORIES)


@pytest.mark.slow
def test_classes_are_real_where_there_are_some_and_noise_where_there_are_none(model):
    assert model.evidence().labels.count("real") >= 2
    misfit = {"misfit of the released totals (standard deviations)": model.match().misfit}
    assert model.findings() == {"number of real classes": float(model.evidence().labels.count("real"))} | misfit
    for seed, sigma in ((0, 3.0), (1, 30.0)):
        plan = PrivacyPlan(noise_multiplier=sigma, sampling_rate=1.0, n_steps=30, reproducible_noise=True)
        evidence = fitted(without_classes(8000, seed), privacy=plan).evidence()
        assert "real" not in evidence.labels
        assert len(evidence.labels) == 5
    loud = PrivacyPlan(noise_multiplier=1e4, sampling_rate=1.0, n_steps=3, reproducible_noise=True)
    evidence = fitted(without_classes(100), privacy=loud).evidence()
    assert "empty" in evidence.labels
    assert "empty" in str(evidence)


def test_labels_are_computed_from_released_numbers_only(model, tmp_path):
    model.save(tmp_path / "classes.vips")
    assert load(tmp_path / "classes.vips").evidence().labels == model.evidence().labels


def test_fits_without_noise_and_of_one_class_have_no_labels():
    codes = answers(200)
    for plain in (fitted(codes, privacy=PrivacyPlan.non_private(n_steps=5)), fitted(codes, n_components=1)):
        assert plain.evidence() is None
        assert "number of real classes" not in plain.findings()
        assert "label" not in plain.summary()


def test_a_summary_names_the_answers_that_tell_a_class(model):
    table = model.summary(n_answers=2)
    assert table["share"].is_monotonic_decreasing
    assert table["share"].sum() == pytest.approx(1.0)
    assert list(table.columns) == ["share", "noise", "label", "typical answers"]
    assert [model.evidence().labels[k] for k in table.index] == list(table["label"])
    k = table.index[0]
    overall, profile = model.weights_ @ model.components_, model.components_[k]
    v = int(np.argmax(profile * np.log(profile / overall)))
    pairs = [(name, category) for name, listed in CATEGORIES.items() for category in listed]
    first = table.loc[k, "typical answers"].split("; ")[0]
    assert first.replace("\\x1b", "\x1b") == f"{pairs[v][0]} = {pairs[v][1]} {profile[v]:.2f} ({overall[v]:.2f})"
    noise = model.noisy_totals_.noise_std["count"]
    assert table["noise"].iloc[0] == pytest.approx(noise / model.last_posterior_.weights.concentration.sum())
    with pytest.raises(ValueError, match="`n_answers`"):
        model.summary(0)


def test_a_picture_of_the_profiles(model):
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    ax = model.plot_profiles()
    (shades,) = ax.get_images()
    order = np.argsort(-model.weights_, kind="stable")
    np.testing.assert_allclose(shades.get_array(), model.components_[order].T)
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert "area = $north$" in names
    assert r"area = ea\x1bst" in names
    ax.figure.canvas.draw()
    _, axes = plt.subplots()
    assert model.plot_profiles(["sex", "member"], ax=axes) is axes
    assert axes.get_images()[0].get_array().shape == (4, 5)
    with pytest.raises(ValueError, match="`columns` must name"):
        model.plot_profiles(["height"])
    plt.close("all")

"""What people read of hidden Markov models."""

from __future__ import annotations

import numpy as np
import pytest

from vips import CategoricalHMM, GaussianHMM

RNG = np.random.default_rng(0)
WARDS = (RNG.random((400, 30)) < 0.1).cumsum(axis=1) % 2
EVENTS = list(3 * WARDS + RNG.integers(0, 3, WARDS.shape))
PULSE = list(1.0 - 2.0 * WARDS + 0.2 * RNG.normal(size=WARDS.shape))
NAMES = ["bath", "meal", "nap", "scan", "surgery", "visit"]


@pytest.fixture(scope="module")
def symbols():
    return CategoricalHMM(2, n_symbols=6, random_state=0).fit(EVENTS)


@pytest.fixture(scope="module")
def vectors():
    return GaussianHMM(2).fit(PULSE)


def test_summary_says_what_states_are(symbols, vectors):
    table = symbols.summary(names=NAMES, n_typical=3)
    assert sorted(", ".join(sorted(w.split(" (")[0] for w in row.split(", "))) for row in table["typical symbols"]) == [
        "bath, meal, nap", "scan, surgery, visit",
    ]  # fmt: skip
    assert "(0 %)" not in "".join(symbols.summary()["typical symbols"])  # more are asked for than a state has
    np.testing.assert_allclose(table["share"], [np.mean(k == WARDS) for k in _order(symbols)], atol=0.02)
    np.testing.assert_allclose(table["steps of a stay"], 10.0, rtol=0.15)
    table = vectors.summary(names=["pulse"])
    np.testing.assert_allclose(np.sort(table["mean pulse"]), [-1.0, 1.0], atol=0.02)
    np.testing.assert_allclose(table["std pulse"], 0.2, atol=0.02)
    with pytest.raises(ValueError, match="6 names"):
        symbols.summary(names=["one"])


def _order(model):
    """Ward of each state."""
    return [int(row[3:].sum() > 0.5) for row in model.emissionprob_]


@pytest.mark.parametrize("fixture", ["symbols", "vectors"])
def test_pictures(fixture, request):
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    model, data = request.getfixturevalue(fixture), EVENTS if fixture == "symbols" else PULSE
    ax = model.plot_transitions()
    assert len(ax.patches) == 2
    assert any("stays 90 %" in text.get_text() or "stays 9" in text.get_text() for text in ax.texts)
    ax = model.plot_emissions()
    shown = ax.images[0].get_array()
    assert shown.shape == ((6, 2) if fixture == "symbols" else (1, 2))
    ax = model.plot_sequences([data[0], data[1][:7]])
    picture = ax.images[0].get_array()
    assert picture.shape == (2, 30, 3)
    assert (picture[1, 7:] == 1.0).all()
    assert len({tuple(colour) for colour in picture[0]}) == 2
    plt.close("all")

"""The mechanisms that docs/accounting.md writes out: do they keep the ε that the page charges for them?"""

from __future__ import annotations

import doctest
import math

import numpy as np
import pytest
from scipy.stats import beta

from tests import ROOT
from vips.core.mechanism.secret_bits import secret_bits

pytest.importorskip("opendp")
N = 20_000


@pytest.fixture(scope="module")
def page():
    """Names that the page defines; only its definitions are run. Noise is NumPy's, which is faster."""
    text = (ROOT / "docs/accounting.md").read_text(encoding="utf-8")
    names: dict = {}
    for example in doctest.DocTestParser().get_examples(text):
        if example.source.startswith(("import", "from", "def", "class", "dp.")):
            exec(example.source, names)
    draws = [names["laplace"](3.0) for _ in range(300)]
    assert np.mean(np.abs(draws)) == pytest.approx(3.0, abs=5 * 3.0 / np.sqrt(300))
    rng = np.random.default_rng(secret_bits(128))
    names["laplace"] = lambda scale: rng.laplace(scale=scale)
    return names


def lower_bound_on_epsilon(hits, hits_of_neighbour):
    """Least ε of P(event) ≤ e^ε P'(event), by Clopper and Pearson's limits; false once in 10⁵ tests."""
    low = beta.ppf(1e-5, hits, N - hits + 1)
    high = beta.ppf(1 - 1e-5, hits_of_neighbour + 1, N - hits_of_neighbour)
    return math.log(low / high)


def halts_at_the_last(above_threshold, values):
    return sum(above_threshold(values, 0.0, 2.0) == len(values) - 1 for _ in range(N))


def test_sparse_vector_keeps_its_epsilon(page, monkeypatch):
    """Neighbours whose values move against each other: the worst case for the first value above."""

    def bound():
        hits = (halts_at_the_last(page["above_threshold"], values) for values in ([-1.0, -1.0, -1.0, 1.0], [0.0] * 4))
        return lower_bound_on_epsilon(*hits)

    assert 0.2 < bound() <= 2.0
    noise = page["laplace"]
    monkeypatch.setitem(page, "laplace", lambda scale: noise(scale / 4))
    assert bound() > 2.0, "noise that is too small is not noticed"


def test_thresholdout_keeps_its_epsilon(page):
    """One record of four is replaced, and one answer may disagree: ε = 1 / (0.25 · 4)."""

    def disagrees(held_out):
        count = 0
        for _ in range(N):
            holdout = page["Thresholdout"](4, threshold=0.9, tolerance=0.25, budget=1)
            assert holdout.epsilon == 1.0
            count += holdout.mean(np.zeros(4), held_out) > 0.6
        return count

    without_last, all_of_them = disagrees(np.array([1.0, 1.0, 1.0, 0.0])), disagrees(np.ones(4))
    assert 0.0 < lower_bound_on_epsilon(all_of_them, without_last) <= 1.0


def test_a_spent_hold_out_set_answers_nothing(page):
    holdout = page["Thresholdout"](10_000, threshold=0.04, tolerance=0.001, budget=1)
    assert holdout.mean(np.zeros(10), np.ones(10_000)) == pytest.approx(1.0, abs=0.05)
    with pytest.raises(RuntimeError, match="spent"):
        holdout.mean(np.zeros(10), np.ones(10_000))

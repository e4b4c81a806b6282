"""What an attack on the release finds: nearly all without noise, no more than the bound with it, unless it is too small."""

import numpy as np
import pytest
from sklearn.base import clone

from tests.known_bits import cached
from vips import (
    BayesianLogisticRegression,
    DirichletMultinomial,
    LatentDirichletAllocation,
    PrivacyBudget,
    PrivacyLedger,
    PrivacyPlan,
    PrivateTable,
    rehearse,
)
from vips.__main__ import main
from vips.core import engine
from vips.core.mechanism import noise
from vips.datasets import make_lda_corpus

BUDGET = PrivacyBudget(1.0, 1e-6)
ONE_STEP = DirichletMultinomial(privacy=PrivacyBudget(4.0, 1e-6))  # all of its records have the largest share
MODELS = {
    "a regression": (BayesianLogisticRegression(max_norm=1.0, privacy=BUDGET), {"n_features": 3}),
    "a table": (PrivateTable(columns={"a": ["x", "y"], "b": (0, 10)}, privacy=BUDGET), {}),
    "topics of samples": (
        LatentDirichletAllocation(3, vocabulary=30, privacy=BUDGET.plan(sampling_rate=0.5, n_steps=4)),
        {"like": make_lda_corpus(400, n_topics=3, n_words=30, document_length=20, random_state=0).counts},
    ),
    "one step": (ONE_STEP, {"n_features": 3, "n_fits": 600}),
}


def attacked(model, n_fits=200, **settings):
    return rehearse(model, n_records=400, attack=n_fits, random_state=0, **settings).attack


def exceeds(reach):
    """Whether more is found than the bound, by six standard errors: the chance of that is below 1e-6."""
    return any(reach.reached[who][1] > reach.bounds[1] + 6.0 * reach.errors[who][1] for who in reach.reached)


@cached
def reached(name):
    model, settings = MODELS[name]
    return attacked(model, **settings)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if i < 2 else ()) for i, name in enumerate(MODELS)]
)
def test_nearly_all_are_found_without_noise_and_no_more_than_the_bound_with_it(name):
    reach = reached(name)
    assert min(reach.without_noise) > 0.99
    assert reach.bounds == pytest.approx((0.0120, 0.0678) if name == "one step" else (0.0022, 0.0183), rel=0.15)
    assert not exceeds(reach)
    assert all(0.0 < errors[1] < 0.03 for errors in reach.errors.values())


def test_the_largest_shares_reach_the_bound():
    for shares in reached("one step").reached.values():  # their errors are a tenth
        assert 0.5 * 0.0678 < shares[1] < 2.0 * 0.0678


def test_noise_that_is_too_small_is_found(monkeypatch):
    usual = noise.add_noise
    monkeypatch.setattr(noise, "add_noise", lambda total, blocks, std, rng: usual(total, blocks, std / 5.0, rng))
    reach = attacked(ONE_STEP, n_features=3)
    assert exceeds(reach)


def test_neither_private_records_nor_a_budget_are_touched(tmp_path, monkeypatch):
    path, read, usual = tmp_path / "ours.ledger", [], engine.clipped_sum
    ledger = PrivacyLedger(path, 1.0, 1e-6, "Votes")
    model = DirichletMultinomial(privacy=BUDGET).fit(np.full((500, 2), [0.75, 0.25]), ledger=ledger)
    before, state = path.read_bytes(), vars(model).copy()

    def seen(model, phase, data, *others):
        read.append(data.arrays[0].min())
        return usual(model, phase, data, *others)

    monkeypatch.setattr(engine, "clipped_sum", seen)
    rehearsal = rehearse(model, n_records=400, like=np.full((400, 2), 0.5), attack=200)
    assert set(read) == {0.5}
    assert len(read) > 200
    assert path.read_bytes() == before
    assert vars(model) == state
    page = tmp_path / "page.html"
    model.privacy_.to_html(page, ledger=ledger, attack=str(rehearsal.attack))
    assert "no upper limit" in page.read_text()
    assert path.read_bytes() == before


def test_a_page_shows_the_attack_and_its_check_says_that_nothing_vouches_for_it(tmp_path, capsys):
    fitted, reach = clone(ONE_STEP).fit(np.eye(3)), reached("one step")
    page, model = tmp_path / "page.html", tmp_path / "model"
    fitted.save(model)
    fitted.privacy_.to_html(page, attack=str(reach))
    check = ["certificate", "check", str(page), "--model", str(model)]
    assert str(reach) in page.read_text()
    assert main(check) == 0
    assert "attack, stated by people" in capsys.readouterr().out
    page.write_text(page.read_text().replace("of records at random", "of no record", 1))
    assert main(check) == 1
    with pytest.raises(TypeError, match="`attack` must be a text"):
        fitted.privacy_.to_html(page, attack=reach)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"attack": 20}, "at least 200 fits"),
        ({"attack": 0.5}, "must be an integer"),
        ({"n_records": 399}, "at least 400 records"),
        ({"like": (np.eye(3), None, np.arange(3))}, "persons of several rows"),
    ],
)
def test_what_cannot_be_attacked_is_said_before_a_fit(settings, says, monkeypatch):
    monkeypatch.setattr(DirichletMultinomial, "fit", None)
    with pytest.raises(ValueError, match=says):
        rehearse(ONE_STEP, **{"n_records": 400, "n_features": 3, "attack": 200} | settings)


def test_a_plan_without_a_delta_can_be_attacked():
    plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=1)
    reach = attacked(DirichletMultinomial(privacy=plan), n_features=3)
    assert reach.bounds[1] == pytest.approx(0.0924, abs=1e-3)  # Φ(1 - 2.326)
    assert not exceeds(reach)

"""The outright δ of a ledger: the filter that adds δ_i beside Rényi divergences, and rules that would break it."""

import sqlite3
import subprocess
import sys

import numpy as np
import pytest
from dp_accounting import pld
from scipy.optimize import brentq

from vips import PrivacyBudgetError, PrivacyLedger
from vips.privacy.ledger import LedgerError, chain_file
from vips.privacy.ledger.terms import filter_budget

EPSILON, DELTA, OUTRIGHT = 2.0, 1e-3, 0.5e-3
STATED = {"unit": "one letter", "relation": "add_or_remove"}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "letters.ledger"


@pytest.fixture
def ledger(path):
    return make(path)


def make(path, outright_delta=OUTRIGHT):
    return PrivacyLedger(path, EPSILON, DELTA, "letters", outright_delta=outright_delta)


def charge(ledger, what="a query", **statement):
    return ledger.charge_event(what, **STATED, **statement)


# -- the reserve ------------------------------------------------------------------------------------------------


def test_the_renyi_side_uses_the_rest_of_delta_and_never_changes(ledger):
    budget = ledger.remaining()["filter_budget"]
    assert budget == pytest.approx(filter_budget(EPSILON, DELTA - OUTRIGHT, ledger.order))
    charge(ledger, epsilon=0.1, delta=2e-4)
    ledger.begin_event("an event", **STATED, rho=0.01, delta=1e-4).close()
    assert ledger.remaining()["filter_budget"] == budget
    assert ledger.remaining()["outright_delta"] == pytest.approx(3e-4)


def test_the_deltas_add_up_to_at_most_the_reserve(path, ledger):
    for _ in range(5):
        charge(ledger, epsilon=0.0, delta=1e-4)
    before = path.read_bytes()
    with pytest.raises(PrivacyBudgetError, match=r"no room for 'a query'.*1e-08.*Nothing was charged"):
        charge(ledger, epsilon=0.0, delta=1e-8)
    assert path.read_bytes() == before
    assert ledger.remaining()["outright_delta"] == 0.0
    assert ledger.spent() == 0.0
    charge(ledger, rho=0.01)  # the Rényi side still has room


def test_one_event_may_take_the_whole_reserve_and_no_more(ledger):
    with pytest.raises(PrivacyBudgetError):
        charge(ledger, epsilon=0.0, delta=np.nextafter(OUTRIGHT, 1.0))
    charge(ledger, epsilon=0.0, delta=OUTRIGHT)


def test_an_event_that_the_renyi_side_refuses_charges_no_delta(path, ledger):
    before = path.read_bytes()
    with pytest.raises(PrivacyBudgetError, match="no room for 'a query'"):
        charge(ledger, epsilon=50.0, delta=1e-4)
    assert path.read_bytes() == before


@pytest.mark.parametrize("outright_delta", [DELTA, 2.0 * DELTA, -1e-9, np.nan, "1e-4", np.nextafter(DELTA, 0.0)])
def test_the_reserve_is_a_part_of_delta(path, outright_delta):
    with pytest.raises(ValueError, match="outright_delta"):
        make(path, outright_delta)
    assert not path.exists()


def test_the_reserve_is_a_term_of_the_ledger(path, ledger):
    assert make(path).outright_delta == PrivacyLedger.open(path).outright_delta == OUTRIGHT
    with pytest.raises(LedgerError, match=r"outright_delta 0.0005, not 0.0\."):
        make(path, 0.0)


def test_a_ledger_without_a_reserve_refuses_a_delta_and_says_what_to_do(path):
    ledger = make(path, 0.0)
    with pytest.raises(LedgerError, match="without an outright δ") as refused:
        charge(ledger, epsilon=0.1, delta=1e-4)
    charge(ledger, rho=0.01)
    assert "PrivacyLedger(..., outright_delta=0.0001)" in str(refused.value)
    with_reserve = make(path.with_name("other"), 1e-4)
    charge(with_reserve, epsilon=0.1, delta=1e-4)


@pytest.mark.parametrize("value", ["-1e-4", "NaN", "Infinity", '"much"', "true", "1e-3"])
def test_a_forged_reserve_is_refused(path, ledger, value):
    forge(path, 0, lambda body: body.replace('"outright_delta":0.0005', f'"outright_delta":{value}'))
    with pytest.raises(LedgerError, match="forged"):
        PrivacyLedger.open(path)


@pytest.mark.parametrize("field", ["divergence", "outright_delta"])
@pytest.mark.parametrize("value", ["-1.0", "NaN", "-Infinity", '"none"', "null", "false"])
def test_a_forged_charge_is_refused(path, ledger, field, value):
    charge(ledger, rho=1.0 / ledger.order, delta=1.0e-4)
    cost = ledger.runs()[0].divergence if field == "divergence" else 0.0001
    forge(path, 1, lambda body: body.replace(f'"{field}":{cost}', f'"{field}":{value}'))
    with pytest.raises(LedgerError, match="forged"):
        PrivacyLedger.open(path)


def forge(path, number, edit):
    """Change an entry, and all hashes from there on."""
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT number, body, hash FROM entries ORDER BY number").fetchall()
    previous = chain_file.START
    for each, body, _ in rows:
        forged = edit(body) if each == number else body
        assert (forged != body) == (each == number)
        previous = chain_file._hash(each, previous, forged)
        connection.execute("UPDATE entries SET body = ?, hash = ? WHERE number = ?", (forged, previous, each))
    connection.commit()
    connection.close()


def test_a_kill_after_the_charge_leaves_it_charged(path, ledger):
    code = (
        "import os; from vips import PrivacyLedger\n"
        f"run = PrivacyLedger.open({str(path)!r}).begin_event('an event', **{STATED}, rho=0.01, delta=1e-4)\n"
        "os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == -9
    (run,) = ledger.runs()
    assert (run.state, run.charged) == ("open at 0", 1)
    assert ledger.remaining()["outright_delta"] == pytest.approx(4e-4)
    assert ledger.close(run.run) == 1  # somebody knows that nothing was released
    assert ledger.remaining()["outright_delta"] == OUTRIGHT
    assert ledger.spent() == 0.0


# -- the theorem ------------------------------------------------------------------------------------------------


def test_statements_of_epsilon_and_delta_compose_to_no_more_than_the_ledger_says(ledger):
    """Against their exact composition (Kairouz, Oh and Viswanath), by dp_accounting's privacy loss distributions."""
    for _ in range(4):
        charge(ledger, epsilon=0.1, delta=1e-4)
    charge(ledger, epsilon=0.2)
    charge(ledger, rho=0.5 / 8.0**2)
    losses = [
        pld.privacy_loss_distribution.from_privacy_parameters(pld.common.DifferentialPrivacyParameters(0.1, 1e-4)),
        pld.privacy_loss_distribution.from_privacy_parameters(pld.common.DifferentialPrivacyParameters(0.2)),
        pld.privacy_loss_distribution.from_gaussian_mechanism(8.0),
    ]
    exact = losses[0].self_compose(4).compose(losses[1]).compose(losses[2])
    assert exact.get_delta_for_epsilon(ledger.spent()) <= DELTA
    assert exact.get_delta_for_epsilon(0.0) > 4e-4  # the outright δ is really spent
    assert ledger.spent() < 2.0 * exact.get_epsilon_for_delta(DELTA)


def two_point(probability, loss):
    """P and Q on {hit, miss}, with log P(hit)/Q(hit) = loss."""
    other = probability * np.exp(-loss)
    return np.array([probability, 1.0 - probability]), np.array([other, 1.0 - other])


def divergence_of(p, q, order):
    moments = [np.sum(a**order * b ** (1.0 - order)) for a, b in ((p, q), (q, p))]
    return np.log(max(moments)) / (order - 1.0)


def probability_of_hit(loss, divergence, order):
    """Of the pair with this Rényi divergence."""
    return brentq(lambda p: divergence_of(*two_point(p, loss), order) - divergence, 1e-12, 1.0 - 1e-9, xtol=1e-15)


def delta_of_attack(first, divergence_after_hit, order):
    """δ(ε) of: a pair ``first``; after a hit the worst further pair that the rule admits; after a miss all outright δ."""
    (hit_p, miss_p), (hit_q, miss_q) = first

    def hockey_stick(p, q):
        return np.sum(np.maximum(p - np.exp(EPSILON) * q, 0.0))

    after_hit = hockey_stick(np.array([hit_p]), np.array([hit_q]))
    if divergence_after_hit > 1e-6:
        for loss in np.linspace(0.05, 2.0, 40):
            if divergence_of(*two_point(1.0 - 1e-9, loss), order) > divergence_after_hit:
                p, q = two_point(probability_of_hit(loss, divergence_after_hit, order), loss)
                after_hit = max(after_hit, hockey_stick(hit_p * p, hit_q * q))
    return after_hit + miss_p * OUTRIGHT + (1.0 - OUTRIGHT) * hockey_stick(miss_p, miss_q)


def test_outright_delta_that_is_chosen_after_a_result_cannot_beat_the_ledger(path):
    """The counterexample to a Rényi side that uses whatever outright δ is not spent yet.

    Under such a rule an analyst spends the Rényi budget on a pair that hits rarely. After a miss, all outright δ is spent;
    after a hit none of it, and the Rényi side has the budget of all of δ. Each history keeps Σ ρ ≤ B(ε, δ - Σ δ_i). Together
    they exceed δ. In the ledger, what a miss spends is not there after a hit either.
    """
    ledger = make(path)
    order, budget = ledger.order, ledger.remaining()["filter_budget"] * (1.0 - 1e-9)
    firsts = [
        two_point(probability_of_hit(loss, budget, order), loss)
        for loss in np.linspace(1.5, 3.0, 31)
        if divergence_of(*two_point(1.0 - 1e-9, loss), order) > budget
    ]
    assert len(firsts) > 20
    by_the_rule = filter_budget(EPSILON, DELTA, order) - budget
    assert max(delta_of_attack(first, by_the_rule, order) for first in firsts) > 1.3 * DELTA, "not a counterexample"

    charge(ledger, rho=budget / order)  # the filter looks at one order only
    path.with_name("missed").write_bytes(path.read_bytes())
    missed, hit = PrivacyLedger.open(path.with_name("missed")), ledger
    charge(missed, epsilon=0.0, delta=OUTRIGHT)
    assert missed.remaining()["outright_delta"] == 0.0
    worst = max(delta_of_attack(first, hit.remaining()["divergence"], order) for first in firsts)
    assert 0.9 * DELTA < worst <= DELTA

"""Events that are not fits: what is stated about them, how a ledger counts it, and their life in the file."""

import json
from dataclasses import replace

import dp_accounting
import numpy as np
import pytest

from tests.core.ledger.test_ledger import PLAN, admitted_in_a_race, fit, kinds
from tests.plans import REPLACED
from vips import PrivacyBudgetError, PrivacyLedger
from vips.__main__ import main
from vips.core.accounting.domination import mu_of_pure, mu_of_zcdp
from vips.core.budget import PrivacyBudget
from vips.core.ledger import LedgerError, current_ledger
from vips.core.ledger.pricing import stated
from vips.core.ledger.reader import append_entries

ADD_OR_REMOVE = {"unit": "one letter", "relation": "add_or_remove"}
REPLACE_ONE = {"unit": "one letter", "relation": "replace_one"}
GAUSSIAN = dp_accounting.GaussianDpEvent(3.0)


def make(path, relation="add_or_remove"):
    return PrivacyLedger(path, 6.0, 1e-5, "letters", relation=relation, pure=1.0)


@pytest.fixture
def ledger(path):
    return make(path)


@pytest.fixture
def of_replace_one(path):
    return make(path, "replace_one")


def cost(ledger, **statement):
    """μ², δ₀ and ε₀ of one event."""
    cost = ledger.run(ledger.charge_event("a query", **statement)).cost()
    return cost.mu2, cost.delta_0, cost.pure


# -- what a statement costs -------------------------------------------------------------------------------------


def test_every_kind_of_statement_costs_what_it_says(ledger):
    assert cost(ledger, event=GAUSSIAN, **ADD_OR_REMOVE) == pytest.approx((1.0 / 9.0, 0.0, 0.0))
    assert cost(ledger, rho=0.01, **ADD_OR_REMOVE) == pytest.approx((mu_of_zcdp(0.01) ** 2, 0.0, 0.0))
    assert cost(ledger, rho=0.01, delta=1e-7, **ADD_OR_REMOVE) == pytest.approx((mu_of_zcdp(0.01) ** 2, 1e-7, 0.0))
    assert cost(ledger, epsilon=0.1, **ADD_OR_REMOVE) == pytest.approx((0.0, 0.0, 0.1))
    assert cost(ledger, epsilon=0.1, delta=1e-7, **ADD_OR_REMOVE) == pytest.approx((0.0, 1e-7, 0.1))
    assert cost(ledger, event=dp_accounting.LaplaceDpEvent(4.0), **ADD_OR_REMOVE) == pytest.approx((0.0, 0.0, 0.25))
    assert cost(ledger, event=GAUSSIAN, delta=1e-7, **ADD_OR_REMOVE) == pytest.approx((1.0 / 9.0, 1e-7, 0.0))
    # numbers of NumPy are stored as numbers
    ledger.charge_event("a query", epsilon=np.float32(0.125), delta=np.float64(1e-7), **ADD_OR_REMOVE)
    ledger.charge_event("a query", rho=np.int64(0), **ADD_OR_REMOVE)
    statements = [entry["statement"] for entry in ledger.history() if entry["kind"] == "charge"]
    assert {"epsilon": 0.125, "delta": 1e-7, "relation": "add_or_remove"} in statements
    json.dumps(ledger.history(), allow_nan=False)
    left, runs = ledger.remaining(), [run.cost() for run in ledger.runs()]
    for name, limit in zip(("mu2", "delta_0", "pure"), ledger.history()[0]["limits"], strict=True):
        assert getattr(left, name) == pytest.approx(limit - sum(getattr(cost, name) for cost in runs))


def test_a_pure_charge_that_does_not_fit_is_charged_whole_as_a_gaussian_one(ledger):
    assert cost(ledger, epsilon=0.7, **ADD_OR_REMOVE) == pytest.approx((0.0, 0.0, 0.7))
    assert cost(ledger, epsilon=0.4, **ADD_OR_REMOVE) == pytest.approx((mu_of_pure(0.4) ** 2, 0.0, 0.0))
    assert cost(ledger, epsilon=0.3, **ADD_OR_REMOVE) == pytest.approx((0.0, 0.0, 0.3))  # 0.7 + 0.3 is all of it
    assert ledger.remaining().pure == pytest.approx(0.0, abs=1e-15)


def test_a_plan_costs_what_a_fit_with_it_does(ledger, path):
    other = make(path.with_name("fits"))
    fit(other)
    ledger.charge_event("a histogram", event=PLAN, **ADD_OR_REMOVE)
    assert ledger.spent() == pytest.approx(other.spent(), rel=1e-12)
    with pytest.raises(LedgerError, match="no guarantee"):
        ledger.charge_event("a histogram", event=replace(PLAN, reproducible_noise=True), **ADD_OR_REMOVE)
    with pytest.raises(LedgerError, match="the plan under 'replace_one'"):
        ledger.charge_event("a histogram", event=REPLACED, **ADD_OR_REMOVE)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        *[(statement, "exactly one of") for statement in (
            {}, {"epsilon": 0.1, "rho": 0.1}, {"epsilon": 0.1, "event": GAUSSIAN}, {"delta": 1e-7})],
        *[({"epsilon": value}, "epsilon") for value in (-0.1, np.nan, np.inf, True, "0.1")],
        *[({"rho": value}, "rho") for value in (-0.1, np.inf)],
        *[({"epsilon": 0.1, "delta": value}, "delta") for value in (1.0, -1e-9, np.nan)],
        ({"epsilon": 1e308}, "hardly anything"), ({"rho": 1e308}, "hardly anything"), ({"epsilon": 10**400}, "finite"),
        ({"event": 0.1}, "DpEvent"), ({"event": dp_accounting.NonPrivateDpEvent()}, "cannot add up"),
        *[({"event": GAUSSIAN, "relation": value}, "relation") for value in ("add_one", None)],
        *[({"event": GAUSSIAN, "unit": value}, "in words") for value in (None, "")],
    ],
    ids=str,
)  # fmt: skip
def test_statements_that_say_nothing_are_refused_and_charge_nothing(ledger, statement, message):
    with pytest.raises((ValueError, TypeError), match=message):
        ledger.charge_event("a query", **(ADD_OR_REMOVE | statement))
    with pytest.raises(TypeError, match="unit"):
        ledger.charge_event("a query", epsilon=0.1, relation="add_or_remove")
    with pytest.raises(LedgerError, match="`description`"):
        ledger.charge_event("", epsilon=0.1, **ADD_OR_REMOVE)
    assert kinds(ledger) == ["open"]


def test_what_needs_the_tenth_of_delta_says_when_it_is_used_up(ledger):
    ledger.charge_event("a query", epsilon=0.0, delta=ledger.remaining().delta_0, **ADD_OR_REMOVE)
    sampled = dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(50.0))
    before = ledger.head()
    for event in (
        sampled,
        dp_accounting.ComposedDpEvent([sampled] * 3),
        replace(PLAN, sampling_rate=0.1, sampling="poisson"),
    ):
        with pytest.raises(
            PrivacyBudgetError, match="Samples need a part of the ledger's δ/10, and all of it was spent"
        ):
            ledger.charge_event("a query", event=event, **ADD_OR_REMOVE)
    with pytest.raises(PrivacyBudgetError, match=r"which samples need: write sampling=\"full\""):
        ledger.remaining().plan(sampling_rate=0.1)
    assert ledger.head() == before
    ledger.charge_event("a query", event=ledger.remaining().plan(), **ADD_OR_REMOVE)


# -- unit and relation ------------------------------------------------------------------------------------------


def test_the_unit_must_be_the_ledgers(path, ledger):
    ledger.charge_event("a query", epsilon=0.1, unit="all rows of one patient", relation="add_or_remove")
    with pytest.raises(LedgerError, match="Together they would protect neither"):  # though the ledger is of any unit
        fit(ledger)
    ledger = PrivacyLedger(path.with_name("patients"), 3.0, 1e-5, "letters", unit="one patient")
    stated = {"epsilon": 0.1, "relation": "add_or_remove"}
    with pytest.raises(LedgerError, match="by 'one patient'; a query protects 'one letter'"):
        ledger.charge_event("a query", unit="one letter", **stated)
    assert kinds(ledger) == ["open"]
    ledger.charge_event("a query", unit="one patient", **stated)
    ledger.accept_unit("one letter")
    ledger.charge_event("a query", unit="one letter", **stated)


@pytest.mark.parametrize("statement", [{"epsilon": 0.1}, {"rho": 0.01}, {"event": dp_accounting.ZCDpEvent(0.01)}])
def test_statements_under_replace_one_say_nothing_under_add_or_remove(ledger, statement):
    """A release of the number of records is free under replace-one."""
    with pytest.raises(LedgerError, match="says nothing about data sets of different sizes"):
        ledger.charge_event("a query", **statement, **REPLACE_ONE)
    assert kinds(ledger) == ["open"]


def test_statements_under_add_or_remove_are_converted_to_replace_one(of_replace_one):
    ledger = of_replace_one
    assert cost(ledger, epsilon=0.1, **ADD_OR_REMOVE) == pytest.approx((0.0, 0.0, 0.2))
    assert cost(ledger, rho=0.001, **ADD_OR_REMOVE) == pytest.approx((mu_of_zcdp(0.004) ** 2, 0.0, 0.0))
    stated_cost = cost(ledger, epsilon=0.1, delta=1e-7, **ADD_OR_REMOVE)
    assert stated_cost == pytest.approx((0.0, (1.0 + np.exp(0.1)) * 1e-7, 0.2))
    assert cost(ledger, epsilon=0.1, **REPLACE_ONE) == pytest.approx((0.0, 0.0, 0.1))
    assert cost(ledger, rho=0.001, delta=1e-7, **REPLACE_ONE) == pytest.approx((mu_of_zcdp(0.001) ** 2, 1e-7, 0.0))
    for statement in ({"event": GAUSSIAN}, {"rho": 0.001, "delta": 1e-7}, {"event": PLAN}):
        with pytest.raises(LedgerError, match="State it under 'replace_one'"):
            ledger.charge_event("a query", **statement, **ADD_OR_REMOVE)


def converted_delta(ledger, epsilon, delta):
    """δ₀ of a statement under add-or-remove in a ledger of replace-one."""
    return stated(ledger, None, epsilon, None, delta, "add_or_remove").price(PrivacyBudget(8.0, 1e-6)).delta_0


def test_a_delta_of_few_digits_is_not_rounded_down_when_it_is_converted(of_replace_one):
    for dtype in (np.float16, np.float32, np.float64):
        for delta in map(dtype, np.linspace(1e-7, 5e-7, 20)):
            assert converted_delta(of_replace_one, 0.001, delta) >= (1.0 + np.exp(0.001)) * float(delta), dtype


def test_what_is_converted_bounds_every_path_over_a_removal_and_is_attained(of_replace_one):
    """P and Q are (ε, δ)-close, both ways, and so are Q and R: P and R are as close as the statement is charged for."""
    epsilon, delta = 0.3, 0.02
    ratio = np.exp(epsilon)
    converted = converted_delta(of_replace_one, epsilon, delta)
    r = 0.1  # masses of one event
    q = ratio * r + delta
    p = ratio * q + delta
    assert p - ratio**2 * r == pytest.approx(converted)
    rng = np.random.default_rng(1)
    for _ in range(300):
        q = rng.dirichlet(np.ones(4))
        p, r = (_near(q, epsilon, delta, rng) for _ in range(2))
        assert np.sum(np.maximum(p - ratio**2 * r, 0.0)) <= converted + 1e-12
    # a Gaussian that a removal shifts by 1, and a replacement by 2
    zcdp = stated(of_replace_one, None, None, 0.5, 0.0, "add_or_remove").price(PrivacyBudget(8.0, 1e-6))
    assert zcdp.mu2 >= 2.0**2


def _near(q, epsilon, delta, rng):
    """A distribution that is (ε, δ)-close to q, both ways."""
    p = rng.dirichlet(np.ones(len(q)))
    for share in np.linspace(0.0, 1.0, 101):
        mixed = share * q + (1.0 - share) * p
        gaps = [np.sum(np.maximum(a - np.exp(epsilon) * b, 0.0)) for a, b in ((mixed, q), (q, mixed))]
        if max(gaps) <= delta:
            return mixed
    raise AssertionError("q itself is close to q")


# -- life in the file -------------------------------------------------------------------------------------------


def test_what_another_tool_releases_is_never_given_back(ledger):
    name = ledger.charge_event("a query", epsilon=0.1, delta=1e-7, **ADD_OR_REMOVE)
    assert kinds(ledger) == ["open", "charge", "release"]
    spent = ledger.spent()
    assert ledger.close(name) == 0
    assert ledger.spent() == spent > 0.0
    assert ledger.run(name).state == "complete"
    for event in (name, ledger.charge_event("a table", event=PLAN, **ADD_OR_REMOVE)):
        with pytest.raises(LedgerError, match="another plan"):
            ledger.resume(event, 0, PLAN)


def test_an_event_of_vips_is_given_back_only_before_its_release(ledger):
    run = ledger.begin_event("a table's codes", event=GAUSSIAN, delta=1e-7, **ADD_OR_REMOVE)
    assert PrivacyLedger.open(ledger.path).spent() == ledger.spent() > 0.0  # durable
    run.close()
    assert ledger.spent() == 0.0
    assert ledger.remaining().delta_0 == pytest.approx(1e-6)
    run = ledger.begin_event("a table's codes", event=GAUSSIAN, delta=1e-7, **ADD_OR_REMOVE)
    run.record(1)
    run.close()
    assert ledger.spent() > 0.0
    assert ledger.remaining().delta_0 == pytest.approx(9e-7)
    with pytest.raises(LedgerError, match="no charge for step 2"):
        run.record(2)


def test_a_charge_that_was_interrupted_is_given_back_unless_another_tool_may_have_released(ledger, monkeypatch):
    def append(ledger, *arguments):
        book = append_entries(ledger, *arguments)
        if kinds(ledger)[-1] != "close":
            raise KeyboardInterrupt
        return book

    monkeypatch.setattr("vips.core.ledger.run.append_entries", append)
    for charge in (ledger.begin_event, ledger.charge_event):
        with pytest.raises(KeyboardInterrupt):
            charge("an event", event=GAUSSIAN, **ADD_OR_REMOVE)
    assert [run.charged for run in ledger.runs()] == [0, 1]


def test_an_event_is_charged_to_the_ledger_of_the_block(ledger):
    """As a mechanism of vips does it."""
    with ledger:
        current_ledger().begin_event("a table's codes", event=GAUSSIAN, **ADD_OR_REMOVE).record(1)
        fit()
    assert [run.what for run in ledger.runs()] == ["a table's codes", "BetaBernoulli"]
    assert [run.state for run in ledger.runs()] == ["complete"] * 2


def test_events_and_fits_share_one_budget(ledger):
    before = ledger.affordable(PLAN)
    ledger.charge_event("a query", event=PLAN, **ADD_OR_REMOVE)
    assert before - ledger.affordable(PLAN) == 5
    ledger.charge_event("a query", event=ledger.remaining().plan(), **ADD_OR_REMOVE)
    with pytest.raises(PrivacyBudgetError, match="no room for 5 steps"):
        fit(ledger)
    with pytest.raises(PrivacyBudgetError, match=r"no room for 'a query'.*pure=\.\.\."):
        ledger.charge_event("a query", epsilon=1.1, **ADD_OR_REMOVE)
    assert ledger.spent() <= 5.0
    ledger.charge_event("a query", epsilon=1.0, **ADD_OR_REMOVE)  # the part that is set aside
    assert ledger.spent() <= 6.0


def test_racing_threads_never_overspend_the_outright_delta(path, ledger):
    def charge(account):
        return account.charge_event("a query", epsilon=0.0, delta=1e-7, **ADD_OR_REMOVE)

    assert admitted_in_a_race(ledger, charge, 24) == 10
    assert ledger.remaining().delta_0 < 1e-20


def test_the_shell_shows_events(path, ledger, capsys):
    ledger.charge_event("a query\x1b[2J", epsilon=0.6, delta=1e-7, **ADD_OR_REMOVE)
    ledger.charge_event("a query", epsilon=0.5, **ADD_OR_REMOVE)
    fit(ledger)
    assert main(["ledger", "show", str(path)]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert "ε = 6, δ = 1e-05 (ε = 1 of it pure)" in shown[0]
    assert "a query\\x1b[2J" in shown[1]
    assert shown[1].endswith("ε = 0.6, δ = 1e-07; unit: one letter")
    assert "charged as Gaussian: too little was set aside as `pure`" in shown[2]
    assert shown[-3].startswith(f"spent: ε = {ledger.spent():.4g}; left: ε = {ledger.remaining().epsilon:.4g}, ")
    assert shown[-2] == "Whatever is chosen, the total stays within ε = 6, δ = 1e-05."

"""Every law, over every model."""

import numpy as np
import pytest
import scipy.sparse as sp

from tests.laws import checks, reach, reachable, totals, transport
from tests.laws.cases import CASES, ONE_OF_EACH_CLASS, REPRESENTATIVES, WIDE_CASES, arguments
from tests.models.markov.columns import ColumnHMM
from vips.core.ledger.ledger import PrivacyLedger
from vips.data import Sequences
from vips.model import ConjugateExponentialModel
from vips.persistence.fitted import released_arrays
from vips.privacy import PrivacyBudget, PrivacyPlan

# Laws that need many fits, or concern the engine alone: on one model of each family always, on every model before a release.
STATISTICAL = {
    checks.noise_has_the_stated_size,
    checks.noise_is_never_shared,
    checks.one_event_per_step,
}
# Of these, the engine's own work: on models of one vector, of shares per word and of square blocks.
OF_THE_ENGINE = {checks.noise_has_the_stated_size, checks.noise_is_never_shared}
FEW = {"beta-bernoulli", "lda", "proportions", "mixture"}
# Cases that have other phases than the one of their class.
WITH_OTHER_PHASES = {"chain of few symbols, float32", "gaussian chain, diagonal, float32"}
# How long a record is, and what it may move: on every case always. Other laws concern what a class computes, not its settings.
OF_EVERY_CASE = {
    checks.records_do_not_see_each_other,
    checks.norms_are_joint_and_never_too_small,
    checks.defective_records_change_nothing_else,
    checks.neighbours_stay_within_the_sensitivity,
    checks.hardened_sums_are_exact,
}


def marks(law, case):
    carries = type(case.make_model()).transport is not ConjugateExponentialModel.transport
    if law in OF_THE_ENGINE and case.name not in FEW:
        return pytest.mark.slow
    if case.name in REPRESENTATIVES and (carries or law not in transport.ALL):
        return ()
    if law in transport.ALL and not carries and case.name != "lda":  # the default, which returns what it is given
        return pytest.mark.slow
    if law is reach.what_every_phase_sums and case.name in WITH_OTHER_PHASES:
        return pytest.mark.thorough
    if law in STATISTICAL or (law not in OF_EVERY_CASE and case.name not in ONE_OF_EACH_CLASS):
        return pytest.mark.slow
    return pytest.mark.thorough


EVERY_LAW = [
    pytest.param(law, case, id=f"{law.__name__}-{case.name}", marks=marks(law, case))
    for law in checks.ALL + reach.ALL + totals.ALL + reachable.ALL + transport.ALL
    for case in CASES
] + [
    pytest.param(law, case, id=f"{law.__name__}-{case.name}", marks=pytest.mark.thorough)
    for law in [
        reach.what_every_phase_sums,
        checks.records_do_not_see_each_other,
        checks.defective_records_change_nothing_else,
    ]
    for case in WIDE_CASES
]


@pytest.mark.parametrize(("law", "case"), EVERY_LAW)
@pytest.mark.repeated("everything_reachable_is_a_function_of_the_noisy_totals-logistic sparse diagonal")
def test_law(law, case):
    law(case)


def test_every_representative_is_a_case():
    assert {case.name for case in CASES} >= ONE_OF_EACH_CLASS >= REPRESENTATIVES


def test_one_case_of_each_class_is_named():
    classes = {case.name: type(case.make_model()) for case in CASES}
    assert {classes[name] for name in ONE_OF_EACH_CLASS} == set(classes.values()) - {ColumnHMM}


@pytest.mark.parametrize("case", [case for case in CASES if case.name in ONE_OF_EACH_CLASS], ids=lambda case: case.name)
def test_lists_are_read_like_arrays_or_refused_in_words(case, tmp_path):
    """No record of a list of rows may be lost in silence."""
    records = arguments(case.make_records(40, np.random.default_rng(0)))
    if isinstance(records[0], Sequences):
        lists = ([sequence.tolist() for sequence in records[0]],)
    else:
        lists = tuple((part.toarray() if sp.issparse(part) else part).tolist() for part in records)
    ids, one_step = np.repeat(np.arange(20), 2), PrivacyPlan.non_private(n_steps=1)
    for groups in (None, ids):
        expected, model = (case.make_model(random_state=0, privacy=one_step) for _ in range(2))
        expected.fit(*records, groups=groups)
        model.fit(*lists, groups=None if groups is None else groups.tolist())
        for name, value in released_arrays(expected).items():
            np.testing.assert_allclose(released_arrays(model)[name], value, rtol=1e-6, atol=1e-9)
    plan, ledger = (
        PrivacyBudget(1.0, 1e-6).plan(n_steps=1),
        PrivacyLedger(tmp_path / "rows.ledger", 2.0, 1e-5, dataset="rows"),
    )
    private = case.make_model(privacy=plan)
    if isinstance(records[0], Sequences):  # lists of sequences are read one by one
        return
    for X in (lists, (lists[0], *records[1:]), (tuple(map(tuple, lists[0])), *records[1:])):
        with pytest.raises(
            TypeError, match=r"got (list|tuple): .* dtype (of anything else )?would depend on its values"
        ):
            private.fit(*X, ledger=ledger)
    assert not ledger.runs()

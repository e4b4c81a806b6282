"""Every law, over every model."""

import pytest

from tests.laws import checks, reach, reachable, totals, transport
from tests.laws.cases import CASES, ONE_OF_EACH_CLASS, REPRESENTATIVES, WIDE_CASES
from vips.model import ConjugateExponentialModel

# Laws that need many fits, or concern the engine alone: on one model of each family always, on every model before a release.
STATISTICAL = {
    checks.noise_has_the_stated_size,
    checks.noise_is_never_shared,
    checks.samples_are_poisson,
    checks.totals_are_sums,
    checks.one_event_per_step,
}
# Laws that need a dozen fits, and concern what a class computes, not its settings: on every class always.
OF_A_CLASS = {
    checks.everything_else_is_public,
    reachable.everything_reachable_is_a_function_of_the_noisy_totals,
    totals.totals_are_sums_over_the_public_rate,
    *reach.ALL,
}


def marks(law, case):
    carries = type(case.make_model()).transport is not ConjugateExponentialModel.transport
    if case.name in REPRESENTATIVES and (carries or law not in transport.ALL):
        return ()
    if law in transport.ALL and not carries and case.name != "lda":  # the default, which returns what it is given
        return pytest.mark.slow
    if law in STATISTICAL or (law in OF_A_CLASS and case.name not in ONE_OF_EACH_CLASS):
        return pytest.mark.slow
    return pytest.mark.thorough


EVERY_LAW = [
    pytest.param(law, case, id=f"{law.__name__}-{case.name}", marks=marks(law, case))
    for law in checks.ALL + reach.ALL + totals.ALL + reachable.ALL + transport.ALL
    for case in CASES
] + [
    pytest.param(law, case, id=f"{law.__name__}-{case.name}", marks=pytest.mark.thorough)
    for law in [*reach.ALL, checks.records_do_not_see_each_other, checks.defective_records_change_nothing_else]
    for case in WIDE_CASES
]


@pytest.mark.parametrize(("law", "case"), EVERY_LAW)
def test_law(law, case):
    law(case)


def test_every_representative_is_a_case():
    assert {case.name for case in CASES} >= ONE_OF_EACH_CLASS >= REPRESENTATIVES


def test_one_case_of_each_class_is_named():
    classes = {case.name: type(case.make_model()) for case in CASES}
    assert {classes[name] for name in ONE_OF_EACH_CLASS} == set(classes.values())

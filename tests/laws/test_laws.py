"""Every law, over every model."""

import pytest

from tests.laws import checks, reachable, totals
from tests.laws.cases import CASES, REPRESENTATIVES

# Laws that need many fits, or concern the engine alone: on one model of each family always, on every model before a release.
STATISTICAL = {
    checks.noise_has_the_stated_size,
    checks.noise_is_never_shared,
    checks.samples_are_poisson,
    checks.totals_are_sums,
    checks.one_event_per_step,
}


def marks(law, case):
    if case.name in REPRESENTATIVES:
        return ()
    return pytest.mark.slow if law in STATISTICAL else pytest.mark.thorough


EVERY_LAW = [
    pytest.param(law, case, id=f"{law.__name__}-{case.name}", marks=marks(law, case))
    for law in checks.ALL + totals.ALL + reachable.ALL
    for case in CASES
]


@pytest.mark.parametrize(("law", "case"), EVERY_LAW)
def test_law(law, case):
    law(case)


def test_every_representative_is_a_case():
    assert {case.name for case in CASES} >= REPRESENTATIVES

"""Every law, over every model."""

import pytest

from tests.laws import checks, reachable, totals
from tests.laws.cases import CASES

# One of each family, for the inner loop.
REPRESENTATIVES = {"beta-bernoulli", "lda", "logistic", "proportions", "network"}
EVERY_CASE = [
    pytest.param(case, id=case.name, marks=() if case.name in REPRESENTATIVES else pytest.mark.thorough)
    for case in CASES
]


@pytest.mark.parametrize("case", EVERY_CASE)
@pytest.mark.parametrize("law", checks.ALL + totals.ALL + reachable.ALL, ids=lambda law: law.__name__)
def test_law(law, case):
    law(case)


def test_every_family_has_a_representative():
    assert {case.name for case in CASES} >= REPRESENTATIVES

"""Every law, over every model."""

import pytest

from tests.laws import checks, reachable, totals
from tests.laws.cases import CASES


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("law", checks.ALL + totals.ALL + reachable.ALL, ids=lambda law: law.__name__)
def test_law(law, case):
    law(case)

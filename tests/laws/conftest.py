"""What laws need of matches: they ask what a match depends on, not what it tells."""

import pytest


@pytest.fixture(scope="package", autouse=True)
def short_matches():
    """Few moves with few simulated records, and few other starts."""
    with pytest.MonkeyPatch.context() as patch:
        match = "vips.models.components.matching.match"
        for name, value in (("_FIRST", 1), ("_LAST", 1), ("_MORE", 1), ("_OF_TRIAL", 1), ("_N_STARTS", 2)):
            patch.setattr(f"{match}.{name}", value)
        patch.setattr(f"{match}._FEWEST_SIMULATED", 200)
        yield

"""Laws ask what a posterior or a match depends on, not what it tells: few steps are enough."""

import pytest

FEW = {
    "components.matching.match": {
        "_FIRST": 1, "_LAST": 1, "_MORE": 1, "_OF_TRIAL": 1, "_N_STARTS": 2, "_FEWEST_SIMULATED": 200,
    },
    "markov.pairs": {"_RESTARTS": 3, "_ITERATIONS": 20, "_FURTHER": 40, "_FEWER": 10, "_MORE": 20},
    "dynamics.start": {"_ITERATIONS": 20, "_AGAIN": 10, "_OPENING": 20},
    "dynamics.contract": {"_STEPS_OF_EM": 20},
}  # fmt: skip


@pytest.fixture(scope="package", autouse=True)
def few_iterations():
    """Of EM, and moves of matches."""
    with pytest.MonkeyPatch.context() as patch:
        for module, numbers in FEW.items():
            for name, number in numbers.items():
                patch.setattr(f"vips.models.{module}.{name}", number)
        yield

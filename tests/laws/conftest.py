"""Laws ask what a posterior depends on, not what it tells: few iterations of EM are enough."""

import pytest

FEW = {
    "markov.pairs": {"_RESTARTS": 3, "_ITERATIONS": 20, "_FURTHER": 40, "_FEWER": 10, "_MORE": 20},
    "dynamics.start": {"_ITERATIONS": 20, "_AGAIN": 10, "_OPENING": 20},
    "dynamics.contract": {"_STEPS_OF_EM": 20},
}  # fmt: skip


@pytest.fixture(scope="package", autouse=True)
def few_iterations():
    with pytest.MonkeyPatch.context() as patch:
        for module, numbers in FEW.items():
            for name, number in numbers.items():
                patch.setattr(f"vips.models.{module}.{name}", number)
        yield

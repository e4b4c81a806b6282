"""Laws ask what a posterior depends on, not what it tells: few iterations of EM, in one thread, are enough. Tests of threads
(``test_bits.py``) set their number themselves."""

import pytest

FEW = {
    "markov.pairs": {"_RESTARTS": 3, "_ITERATIONS": 20, "_FURTHER": 40, "_FEWER": 10, "_MORE": 20},
    "dynamics.start": {"_ITERATIONS": 20, "_AGAIN": 10, "_OPENING": 20},
    "dynamics.contract": {"_STEPS_OF_EM": 20},
    "components.matching.match": {
        "_FIRST": 1, "_LAST": 1, "_MORE": 0, "_OF_TRIAL": 1, "_N_STARTS": 1, "_FEWEST_SIMULATED": 100,
    },
    "markov.matching": {"ChainSimulator.sizes": (200, 200, 200)},
    "dynamics.matching": {"SystemSimulator.sizes": (200, 200, 200)},
    "mixtures.matching": {"ClassSimulator.sizes": (200, 200, 200)},
    "gaussian_mixtures.matching": {"MixtureSimulator.sizes": (200, 200, 200)},
    "belief_networks.matching": {"_FEW": 100, "_MANY": 100},
    "second_moments.factors": {"_N_DRAWS": 20},
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def few_iterations(few_generated_documents, one_thread):
    with pytest.MonkeyPatch.context() as patch:
        for module, numbers in FEW.items():
            for name, number in numbers.items():
                patch.setattr(f"vips.models.{module}.{name}", number)
        yield

"""Generated examples, and fixtures for the tests of audits, of pages, of blocks of ledgers and of the documentation."""

import gc
import importlib.util
import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor

import hypothesis
import pytest
from joblib.externals.loky.backend.context import set_start_method

from tests import ROOT
from tests.browsing import chromium
from tests.known_bits import AFRESH
from vips import ConjugateExponentialModel, PrivacyLedger
from vips.models.components.matching import match

# `make test` generates the same examples in every run; `make test-all` looks for new ones
hypothesis.settings.register_profile("same", derandomize=True, deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


# Workers of Dask fork from a server that has imported the package, which takes seconds. It starts with the first of them.
os.environ.setdefault("DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD", "forkserver")
PRELOADED = ["distributed", "tests.laws.cases", "vips.core.engine", "vips.saving"]


PAGES = {"README.md", "start.md", "own_model.md"}  # of which every change runs the examples
LONG_EXAMPLES = {  # in docstrings, of seconds
    "vips/tools/auditing/audit.py", "vips/models/components/matching/how_many.py", "vips/models/dynamics/linear.py",
    "vips/models/markov/categorical.py", "vips/models/markov/gaussian.py", "vips/models/markov/poisson.py",
    "vips/tools/planning/plan.py", "vips/tools/planning/study.py", "vips/models/mixtures/mixed.py",
    "vips/models/mixtures/latent_class.py", "vips/models/gaussian_mixtures/mixture.py",
}  # fmt: skip


def pytest_collection_modifyitems(config, items):
    """Marks as slow the variants that ``repeated`` names, those that ``representatives`` does not name, and long examples."""
    named, known = {}, {}
    for item in items:
        where = item.path.relative_to(ROOT).as_posix()
        if where in LONG_EXAMPLES or (item.path.suffix == ".md" and item.path.name not in PAGES):
            item.add_marker(pytest.mark.slow)
        for marker in (*item.iter_markers("repeated"), *item.iter_markers("representatives")):
            where, variant = (item.path, item.originalname, marker.name), item.callspec.id
            named.setdefault(where, set()).update(marker.args)
            known.setdefault(where, set()).add(variant)
            if (variant in marker.args) == (marker.name == "repeated"):
                item.add_marker(pytest.mark.slow)
    unknown = {where: ids - known[where] for where, ids in named.items() if ids - known[where]}
    if unknown and not any("::" in argument for argument in config.args):
        raise pytest.UsageError(f"Markers name variants that are none: {unknown}")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What is collected lives until the end: the garbage collector need not look for it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef):
    """A fit that tests share is matched before one of them breaks the code: what it computes later, it keeps."""
    value = yield
    if fixturedef.scope != "function":
        for fit in value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]:
            if isinstance(fit, ConjugateExponentialModel) and hasattr(fit, "last_posterior_"):
                fit.why_no_intervals()
    return value


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder, which is the working directory of the test."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def browser():
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="session")
def forkserver():
    """The context of :mod:`multiprocessing` in which processes, also those of Dask and of joblib, start fast."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    import distributed  # sets its own list, which is shorter

    distributed.utils.get_mp_context()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    if not AFRESH:  # before a release, workers of joblib start as those of users do
        set_start_method("forkserver", force=True)
    return context


@pytest.fixture
def new_process(forkserver):
    """Calls a function in a process of its own, from whose main thread it may fork and ask for signals."""
    with ProcessPoolExecutor(1, mp_context=forkserver) as pool:
        yield lambda function, *arguments: pool.submit(function, *arguments).result(timeout=600)


# Moves of a match, simulated records and other starts.
FEW = {"_FIRST": 2, "_LAST": 1, "_MORE": 1, "_OF_TRIAL": 2, "_N_STARTS": 2, "_FEWEST_SIMULATED": 500}
MANY = {name: getattr(match, name) for name in FEW}

# The same, and iterations of EM, in tests that ask what a posterior depends on, not what it tells.
FEW_ITERATIONS = {
    "markov.start": {"_RESTARTS": 3, "_ITERATIONS": 10, "_FURTHER": 20},
    "dynamics.start": {"_ITERATIONS": 20, "_AGAIN": 10, "_OPENING": 20},
    "dynamics.contract": {"_STEPS_OF_EM": 20},
    "components.matching.match": {
        "_FIRST": 1, "_LAST": 1, "_MORE": 0, "_OF_TRIAL": 1, "_N_STARTS": 1, "_FEWEST_SIMULATED": 100,
    },
    "markov.matching": {"ChainSimulator.sizes": (200, 200, 200)},
    "dynamics.matching": {"SystemSimulator.sizes": (200, 200, 200)},
    "mixtures.posterior": {"ClassSimulator.sizes": (200, 200, 200)},
    "gaussian_mixtures.contract": {"GaussianSimulator.sizes": (200, 200, 200)},
    "belief_networks.matching": {"_FEW": 100, "_MANY": 100},
    "second_moments.factors": {"_N_DRAWS": 20},
}  # fmt: skip

# Of latent classes and of Gaussian mixtures.
SIMULATORS = "mixtures.posterior.ClassSimulator", "gaussian_mixtures.contract.GaussianSimulator"


def moves_of_matches(patch, numbers):
    for name, number in numbers.items():
        patch.setattr(match, name, number)


@pytest.fixture(scope="module", autouse=True)
def few_generated_documents():
    """Comparisons label topics and calibrate intervals by generated documents or records: fewer than users, and pages, have."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vips.models.topics.evidence._N_DOCUMENTS", 300)
        patch.setattr("vips.models.topics.matching._SWEEPS", ((200, 2, 20), (400, 2, 40)))
        patch.setattr("vips.models.topics.matching._N_TOKENS", 2_000)
        patch.setattr("vips.models.belief_networks.matching._FEW", 200)
        patch.setattr("vips.models.belief_networks.matching._MANY", 300)
        for name in SIMULATORS:
            patch.setattr(f"vips.models.{name}.sizes", (1_000, 2_000, 1_000))
        patch.setattr("vips.models.markov.matching.ChainSimulator.sizes", (1_000, 2_000, 1_000))
        patch.setattr("vips.models.dynamics.matching.SystemSimulator.sizes", (1_000, 2_000, 1_000))
        patch.setattr("vips.models.second_moments.factors._N_DRAWS", 60)
        moves_of_matches(patch, FEW)
        yield


@pytest.fixture(scope="module")
def few_iterations(few_generated_documents):
    """So few that a posterior tells little."""
    with pytest.MonkeyPatch.context() as patch:
        for module, numbers in FEW_ITERATIONS.items():
            for name, number in numbers.items():
                patch.setattr(f"vips.models.{module}.{name}", number)
        yield


@pytest.fixture(scope="session", autouse=True)
def one_day():
    """Reports that a test compares may be made before and after midnight."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vips.report.report.today", lambda: "2026-03-14")
        yield


@pytest.fixture(scope="module")
def many_generated_documents():
    """About half as many as users have."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "vips.models.topics.matching._SWEEPS", ((2_000, 15, 60), *((4_000, 15, 60),) * 3, (15_000, 30, 200))
        )
        patch.setattr("vips.models.topics.matching._N_TOKENS", 100_000)
        yield


@pytest.fixture(scope="module")
def many_simulated_records():
    """As many as users have."""
    with pytest.MonkeyPatch.context() as patch:
        for name in SIMULATORS:
            patch.setattr(f"vips.models.{name}.sizes", (5_000, 20_000, 3_000))
        moves_of_matches(patch, MANY)
        yield


@pytest.fixture(scope="module")
def many_generated_sequences():
    """As many as users have."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vips.models.markov.matching.ChainSimulator.sizes", (4_000, 10_000, 2_000))
        moves_of_matches(patch, MANY)
        yield


@pytest.fixture(scope="module")
def many_generated_records():
    """Enough for intervals of small networks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vips.models.belief_networks.matching._FEW", 1_500)
        patch.setattr("vips.models.belief_networks.matching._MANY", 4_000)
        moves_of_matches(patch, MANY)
        yield


@pytest.fixture(scope="module")
def two_threads_of_blas():
    """BLAS has as many as on users' computers, unless the code under test limits it."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(2, user_api="blas"):
        yield


@pytest.fixture(scope="module")
def one_thread():
    """One thread only: for ten records a pool of threads takes longer than the fits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vips.core.exact.threads.n_threads", lambda: 1)
        yield


@pytest.fixture
def ledger(tmp_path):
    return PrivacyLedger(tmp_path / "letters.ledger", epsilon=6.0, delta=1e-5, dataset="letters")


@pytest.fixture
def other(tmp_path):
    return PrivacyLedger(tmp_path / "other.ledger", epsilon=6.0, delta=1e-5, dataset="other")


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The folder of the built documentation, which builds without a warning."""
    for needed in ("sphinx", "furo", "myst_parser"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip("needs the extra docs: pip install 'vips[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", "docs", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder

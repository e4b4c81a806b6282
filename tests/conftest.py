"""Generated examples, and fixtures for the tests of audits, of pages, of blocks of ledgers and of the documentation."""

import importlib.util
import multiprocessing
import os
import subprocess
import sys

import hypothesis
import pytest

# Workers of pytest share the processors: threads of BLAS would only wait for each other. Read when NumPy is imported, below.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from tests import ROOT
from tests.browsing import chromium
from vips import PrivacyLedger

# `make test` generates the same examples in every run; `make test-all` looks for new ones
hypothesis.settings.register_profile("same", derandomize=True, deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


# Workers of Dask fork from a server that has imported the package, which takes seconds. It starts with the first of them.
os.environ.setdefault("DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD", "forkserver")
PRELOADED = ["distributed", "tests.laws.cases", "vips.engine", "vips.saving"]


# Seconds each, for code that another test or variant runs as well: `make test-all` has them.
REPEATED = {
    "test_audit.py::test_the_models_of_the_laws_pass[logistic-gaussian]",
    "test_audit.py::test_the_models_of_the_laws_pass[lda float32, few updates-discrete]",
    "test_audit.py::test_every_kind_of_plan_can_be_audited[poisson, replace_one, gaussian, q = 0.5]",
    "test_audit_mutants.py::test_too_little_noise_is_noticed_by_every_statistical_check[replace_one-noise_over_root_two]",
    "test_ledger_crowd.py::test_a_crowd_loses_no_charge_and_exceeds_no_budget[--processes=2 --threads=6 --seconds=2]",
    "test_fault_injection.py::test_survives[interrupts double_interrupts injected races]",
    "test_executors.py::test_errors_of_workers_quote_no_record[processes]",
    "test_curve.py::test_own_scores_and_processes",
    "test_accounting_conformance.py::test_monotone_in_noise_steps_rate_and_delta[pld-poisson, replace one]",
    "test_accounting_conformance.py::test_no_accountant_of_dp_accounting_is_below_the_truth_for_any_event"
    "[poisson, replace one]",
    "test_saving.py::test_small_files_take_no_memory_and_no_time",
    "test_sigmoid_belief_network.py::test_the_bound_does_not_fall_with_a_full_covariance[6-tpbn]",
    "test_experiments_quick.py::test_runs_quickly_and_says_what_is_known[blr_diabetes]",
    "test_experiments_quick.py::test_runs_quickly_and_says_what_is_known[blr_stroke]",
    "test_logistic_regression.py::test_posterior_against_gibbs[breast cancer]",
    "test_gibbs.py::test_one_coefficient_with_gamma_prior_of_its_precision[40-3000]",
    "test_dirichlet_multinomial.py::test_intervals_hold_the_truth_where_naive_ones_do_not[50000-1.0-0.92]",
    "test_logistic_regression.py::test_a_private_fit_ranks_like_the_truth[1.0-diagonal]",
    "test_count_regression.py::test_private_counts_recover_the_slopes[model1]",
    "test_executors.py::test_words_of_texts_are_the_same_with_every_executor[processes]",
    "test_executors.py::test_every_executor_gives_every_model_the_same_posterior[representatives-discrete]",
    "test_executors.py::test_every_source_gives_every_executor_the_same_posterior[processes]",
    "test_experiments_quick.py::test_runs_quickly_and_says_what_is_known[million_texts]",
    "test_sources.py::test_non_private_fits_read_sources_and_stop_at_an_invalid_record[npy]",
    "test_report.py::test_every_kind_of_plan_has_a_report[poisson]",
    "test_dirichlet_multinomial.py::test_intervals_hold_the_truth_where_naive_ones_do_not[500-0.1-0.91]",
    "test_laws.py::test_law[everything_reachable_is_a_function_of_the_noisy_totals-logistic sparse diagonal]",
    "test_audit.py::test_the_models_of_the_laws_pass[beta-bernoulli-gaussian]",
    "test_compare.py::test_a_model_does_not_differ_from_itself[three classes]",
    "test_words_of_sources_mutants.py::test_mutants_are_noticed[the_threshold_is_one-"
    "check_rare_words_are_released_as_seldom_as_stated-they are released in]",
    "test_bits.py::test_no_chunk_size_and_no_place_changes_a_bit[regression of 70 columns]",
    "test_hostile_rows.py::test_torn_records_count_for_nothing_wherever_they_stand[gaussian-logistic sparse]",
    "test_laws.py::test_law[samples_are_poisson-network]",
    "test_checkpoint.py::test_a_resumed_fit_equals_the_undisturbed_one_where_noise_is_reproducible[discrete-network]",
}


def pytest_collection_modifyitems(items):
    for item in items:
        if item.nodeid.rpartition("/")[2] in REPEATED:
            item.add_marker(pytest.mark.slow)


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
    """The context of :mod:`multiprocessing` in which processes, also those of Dask, start fast."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    import distributed  # sets its own list, which is shorter

    distributed.utils.get_mp_context()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


# Of latent classes and of Gaussian mixtures.
SIMULATORS = "mixtures.matching.ClassSimulator", "gaussian_mixtures.matching.MixtureSimulator"


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
            patch.setattr(f"vips.models.{name}.sizes", (1_000, 2_000, 1_000), raising=False)
        patch.setattr("vips.models.markov.matching.ChainSimulator.sizes", (1_000, 2_000, 1_000))
        patch.setattr("vips.models.dynamics.matching.SystemSimulator.sizes", (1_000, 2_000, 1_000))
        patch.setattr("vips.models.second_moments.factors._N_DRAWS", 60)
        yield


@pytest.fixture(scope="session", autouse=True)
def one_day():
    """Reports that a test compares may be made before and after midnight."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vips.privacy.report.today", lambda: "2026-03-14")
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
        yield


@pytest.fixture(scope="module")
def many_generated_sequences():
    """As many as users have."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vips.models.markov.matching.ChainSimulator.sizes", (4_000, 10_000, 2_000))
        yield


@pytest.fixture(scope="module")
def many_generated_records():
    """Enough for intervals of small networks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vips.models.belief_networks.matching._FEW", 1_500)
        patch.setattr("vips.models.belief_networks.matching._MANY", 4_000)
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
        patch.setattr("vips._compute.threads.n_threads", lambda: 1)
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
    for needed in ("sphinx", "furo", "myst_parser", "sphinx_design"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip("needs the extra docs: pip install 'vips[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", "docs", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder

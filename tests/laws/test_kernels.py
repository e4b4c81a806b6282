"""Files of compiled kernels tell nothing: a private fit compiles the same ones whatever the records are."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher

from tests.laws.cases import CASES, ONE_OF_EACH_CLASS, REPRESENTATIVES, arguments, exposures
from tests.laws.checks import FULL, stack
from tests.mutants import check_notices
from vips import PrivacyPlan
from vips.core import engine
from vips.core.execution import partitions
from vips.core.phases import phases_of
from vips.core.records.arrays import RangesOfRecords
from vips.data import Records

MOST_STEPS = 24  # which reach every phase of every model


def kinds_of_data(case):
    """Tables of one dtype: ordinary, with a record of zeros or with few entries, of defective records, and of none."""
    records = stack(case.make_records(10, np.random.default_rng(0)), case.extreme)
    defective = stack(stack(records[:0], case.hostile["nan"]), case.hostile["minus inf"])
    sparse = stack(stack(records, case.hostile["zero"]), case.hostile["one huge"])
    return {"ordinary": records, "sparse": sparse, "defective": defective, "none": records[:0]}


def all_kernels():
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("vips.")]
    return {
        id(value): value for module in modules for value in vars(module).values() if isinstance(value, Dispatcher)
    }.values()


def n_compiled() -> int:
    """Kernels that this process did not find on disk."""
    return sum(kernel.stats.cache_misses.total() for kernel in all_kernels())


def kernels_of(model, records, groups, totals):
    """Names and types of the kernels of a fit that releases ``totals``, or that writes them there if there are none yet."""
    kernels = all_kernels()
    for kernel in kernels:
        kernel._reset_overloads()  # those on disk are read again
    partitions.rehearsals.cache_clear()
    replayed, summed = list(totals), engine.clipped_sum

    def sum_of_step(*args):
        total = summed(*args)
        if not replayed:
            totals.append(total)
        return replayed[args[6] - 1] if replayed else total

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "clipped_sum", sum_of_step)
        model.fit(*arguments(records), **exposures(records), **({} if groups is None else {"groups": groups}))
    return {(kernel.py_func.__qualname__, types) for kernel in kernels for types in kernel.signatures}


def least_steps(case):
    """The fewest steps, of four or more, that have two of every phase, if it has two."""
    model, records = case.make_model(privacy=FULL), arguments(case.make_records(2, np.random.default_rng(0)))
    model.n_features_in_ = getattr(records[0], "n_features", np.shape(records[0])[-1])

    def lengths(n):
        return {phase.name: min(phase.n_steps, 2) for phase in phases_of(model, n)}

    return next(n for n in range(4, MOST_STEPS + 1) if lengths(n) == lengths(MOST_STEPS))


def kernels_are_the_same_for_all_records(case, with_groups):
    settings = {"noise": "discrete", "max_rows_per_group": 3} if with_groups else {}
    plan = PrivacyPlan(
        noise_multiplier=1.0,
        sampling_rate=0.9,
        n_steps=least_steps(case),
        clip_norm=case.clip_norm,
        reproducible_noise=True,
        **settings,
    )
    data, totals = kinds_of_data(case), []

    def of_fit(kind):
        groups = np.arange(data[kind].shape[0]) // 2 if with_groups else None
        return kernels_of(case.make_model(privacy=plan, random_state=0), data[kind], groups, totals)

    before, expected = n_compiled(), of_fit("ordinary")
    if n_compiled() > before:  # and what these kernels call
        expected = of_fit("ordinary")
    for kind in [*data][1:]:
        kernels = of_fit(kind)
        assert kernels == expected, f"kernels of {kind} records: {sorted(map(str, kernels ^ expected))}"


def _is_slow(case, with_groups):
    return case.name not in (ONE_OF_EACH_CLASS if with_groups else REPRESENTATIVES)


@pytest.mark.parametrize(
    ("case", "with_groups"),
    [
        pytest.param(
            case,
            with_groups,
            marks=pytest.mark.slow if _is_slow(case, with_groups) else (),
            id=f"{case.name}-{'persons, discrete' if with_groups else 'rows'}",
        )
        for case in CASES
        for with_groups in (False, True)
    ],
)
@pytest.mark.filterwarnings("ignore:X is a sparse matrix of float64")  # of documents
def test_kernels_are_the_same_for_all_records(case, with_groups):
    kernels_are_the_same_for_all_records(case, with_groups)


@pytest.mark.parametrize("name", ["logistic", "latent classes", "mixture"])
def test_kernels_do_not_depend_on_how_many_rows_in_fortran_order_there_are(name):
    """Some of its rows are in no order, one is in the order of C, and none are in both."""
    case = next(case for case in CASES if case.name == name)
    X, *y = arguments(case.make_records(20, np.random.default_rng(0)))
    plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=0.7, n_steps=2, clip_norm=1.0, reproducible_noise=True)
    totals, kernels = [], []
    for n in (20, 20, 2, 1, 0):
        model = case.make_model(privacy=plan, random_state=0)
        records = Records(np.asfortranarray(X)[:n], y[0][:n]) if y else np.asfortranarray(X)[:n]
        kernels.append(kernels_of(model, records, None, totals))
    assert kernels[1] == kernels[2] == kernels[3] == kernels[4]


# Each process imports the package, and compiles; what that needs of others is there.
FITS = """
import os, sys
import hypothesis, joblib, numba, pytest, randomgen, scipy.linalg, scipy.sparse, scipy.stats, sklearn.base
for kind in ("ordinary", "none"):
    if os.fork() == 0:
        os.environ["NUMBA_CACHE_DIR"] = numba.config.CACHE_DIR = os.path.join(sys.argv[1], kind)
        from tests.laws.cases import CASES
        from tests.laws.test_kernels import kinds_of_data
        from vips import PrivacyPlan
        case = next(case for case in CASES if case.name == "proportions sparse")
        plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=0.9, n_steps=2, clip_norm=1.0)
        case.make_model(privacy=plan).fit(kinds_of_data(case)[kind])
        os._exit(0)
    assert os.wait()[1] == 0
"""


@pytest.mark.slow  # compiles in two processes; the law above compares the kernels that would be written
def test_files_on_disk_are_the_same_for_all_records(tmp_path):
    subprocess.run([sys.executable, "-c", FITS, str(tmp_path)], check=True)
    files = []
    for kind in ("ordinary", "none"):
        files.append(sorted(str(path.relative_to(tmp_path / kind)) for path in (tmp_path / kind).rglob("*.nb?")))
    assert files[0] == files[1]
    assert any("_copy_rows" in name for name in files[0])


# -- the law can fail ---------------------------------------------------------------------------------------------------


def nothing_is_rehearsed(patch):
    patch.setattr(partitions, "rehearse", lambda task, opened: None)


def one_phase_is_rehearsed(patch):
    original = partitions.rehearse
    patch.setattr(partitions, "rehearse", lambda task, opened: original(replace(task, phase="any"), opened))


def no_partition_without_records(patch):
    patch.setattr(RangesOfRecords, "n_partitions", property(lambda self: len([n for n in self.sizes if n])))


@pytest.mark.parametrize(
    ("mutant", "name"),
    [
        (nothing_is_rehearsed, "proportions sparse"),
        (nothing_is_rehearsed, "latent classes"),
        (one_phase_is_rehearsed, "chain of few symbols, float32"),
        (one_phase_is_rehearsed, "chain"),
        (no_partition_without_records, "proportions sparse"),
    ],
)
def test_mutant_is_noticed(mutant, name, monkeypatch):
    case = next(case for case in CASES if case.name == name)
    check_notices(lambda: kernels_are_the_same_for_all_records(case, False), mutant, monkeypatch, "kernels of")

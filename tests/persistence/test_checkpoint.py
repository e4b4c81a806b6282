"""Checkpoints, resumed fits, and saved models."""

import json
import os
import shutil
import zipfile
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import vips
from tests.laws.cases import CASES, REPRESENTATIVES, BetaBernoulli, SecondMoments, arguments, exposures
from tests.persistence.damage import edited, rewritten
from tests.steps import Stop, stopped_after
from vips import (
    BayesianNegativeBinomialRegression,
    LatentDirichletAllocation,
    PrivacyLedger,
    PrivacyPlan,
    PrivacyWarning,
)
from vips.core import engine
from vips.exceptions import CheckpointError
from vips.persistence import checkpoint
from vips.persistence.archive import read_archive
from vips.persistence.fitted import released_arrays

pytestmark = pytest.mark.usefixtures("few_iterations", "one_thread")

PLAN = PrivacyPlan(noise_multiplier=4.0, sampling_rate=0.5, n_steps=6, clip_norm=1.5)
SEARCHED = PrivacyPlan(noise_multiplier=4.0, sampling_rate=0.5, n_steps=6)
COINS = np.random.default_rng(0).integers(0, 2, (60, 4)).astype(float)


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=() if case.name in REPRESENTATIVES else pytest.mark.slow) for case in CASES],
    ids=lambda case: case.name,
)
@pytest.mark.parametrize("noise", ["gaussian", "discrete"])
@pytest.mark.repeated("discrete-network")
def test_a_resumed_fit_equals_the_undisturbed_one_where_noise_is_reproducible(case, noise, tmp_path):
    plan = replace(PLAN, clip_norm=case.clip_norm, reproducible_noise=True, noise=noise)
    made = case.make_records(40, np.random.default_rng(1))
    records, beside = arguments(made), exposures(made)
    path = tmp_path / "fit.vips"
    expected = released_arrays(case.make_model(privacy=plan, random_state=3).fit(*records, **beside))
    for step in (0, 1, 4):
        path.unlink(missing_ok=True)
        with pytest.raises(Stop):
            stopped_after(case.make_model(privacy=plan, random_state=3), step).fit(*records, **beside, checkpoint=path)
        assert path.exists() is (step > 0)
        resumed = case.make_model(privacy=plan, random_state=3).fit(*records, **beside, checkpoint=path)
        for name, value in released_arrays(resumed).items():
            np.testing.assert_array_equal(value, expected[name])


def test_non_private_fits_can_be_resumed_too(tmp_path):
    def make():
        return LatentDirichletAllocation(
            3, random_state=0, privacy=PrivacyPlan.non_private(sampling_rate=0.5, n_steps=5)
        )

    path, records = tmp_path / "fit.vips", CASES[2].make_records(40, np.random.default_rng(1))
    with pytest.raises(Stop):
        stopped_after(make(), 3).fit(records, checkpoint=path)
    np.testing.assert_array_equal(make().fit(records, checkpoint=path).components_, make().fit(records).components_)


def test_repeated_steps_of_a_private_fit_are_sampled_and_noised_afresh(tmp_path):
    path = tmp_path / "fit.vips"
    empty = COINS[:0]
    with pytest.raises(Stop):
        stopped_after(BetaBernoulli(privacy=PLAN), 3).fit(empty, checkpoint=path)
    kept = path.read_bytes()
    seen = []
    for _ in range(2):  # two fits from one checkpoint have nothing in common after it
        path.write_bytes(kept)
        model = BetaBernoulli(privacy=PLAN)
        original = model.to_posterior
        averages = []
        model.to_posterior = lambda average, *others, original=original, averages=averages: (
            averages.append(average["heads"].copy()) or original(average, *others)
        )
        model.fit(empty, checkpoint=path)
        seen.append(np.array(averages[-3:]))  # of the three steps after it
    assert seen[0].shape == (3, 4)
    assert not np.isin(seen[0], seen[1]).any()


def test_a_checkpoint_holds_released_values_and_nothing_else(tmp_path):
    path = tmp_path / "fit.vips"
    plan = replace(PLAN, reproducible_noise=False)
    model = BetaBernoulli(privacy=plan, random_state=5).fit(COINS, checkpoint=path)
    with zipfile.ZipFile(path) as archive:
        arrays = ["average/heads", "average/count", "noisy/heads", "noisy/count", "posterior/a", "posterior/b"]
        kept = ["totals/heads", "totals/count", "posterior/a", "posterior/b"]
        arrays += [f"steps/{step}/{name}" for step in (4, 5, 6) for name in kept]
        assert sorted(archive.namelist()) == sorted(["header.json", *(f"{name}.npy" for name in arrays)])
        header = json.loads(archive.read("header.json"))
    assert set(header) == {
        "format", "version", "kind", "model", "parameters", "plan", "n_features", "columns", "unit", "run", "step",
        "noise_std", "repeated", "arrays",
    }  # fmt: skip
    assert header["step"] == 6
    assert header["parameters"] == {"random_state": 5, "on_invalid": "drop"}
    assert "key" not in json.dumps(header)
    assert "60" not in json.dumps(header)  # the number of records is not in it either
    np.testing.assert_array_equal(
        model.last_posterior_["a"], 1.0 + np.maximum(read_archive(path, "checkpoint")[1]["average/heads"], 0)
    )


def test_nothing_uses_a_step_before_ledger_and_checkpoint_have_it(tmp_path, monkeypatch):
    """sum → ledger → noise → checkpoint → next step, in this order and durably."""
    log = []
    for owner, name, word in (
        (engine, "clipped_sum", "sum"),
        (PrivacyPlan, "add_noise", "noise"),
        (PrivacyLedger, "release", "ledger"),
        (checkpoint, "write_archive", "checkpoint"),
    ):
        original = getattr(owner, name)
        monkeypatch.setattr(
            owner, name, lambda *a, original=original, word=word, **k: (original(*a, **k), log.append(word))[0]
        )
    ledger = PrivacyLedger(tmp_path / "a.ledger", 5.0, 1e-5, "coins")
    BetaBernoulli(privacy=PLAN).fit(COINS, ledger=ledger, checkpoint=tmp_path / "fit.vips")
    assert log == ["sum", "ledger", "noise", "checkpoint"] * 6


def test_a_kill_between_ledger_and_checkpoint_is_charged_for_the_repeated_step(tmp_path, monkeypatch):
    ledger = PrivacyLedger(tmp_path / "a.ledger", 5.0, 1e-5, "coins")
    path, plan = tmp_path / "fit.vips", PrivacyPlan(noise_multiplier=8.0, sampling="full", n_steps=6, clip_norm=1.5)
    original = checkpoint.write_archive

    def stop_at_three(path, kind, header, *others):
        if header["step"] == 3:
            raise Stop
        original(path, kind, header, *others)

    monkeypatch.setattr(checkpoint, "write_archive", stop_at_three)
    with pytest.raises(Stop):
        BetaBernoulli(privacy=plan).fit(COINS, ledger=ledger, checkpoint=path)
    monkeypatch.undo()
    run = ledger.runs()[0]
    assert (run.last_step, run.returned, run.charged) == (3, 3, 3)
    model = BetaBernoulli(privacy=plan).fit(COINS, ledger=ledger, checkpoint=path)
    run = ledger.runs()[0]
    assert (run.released, run.charged, run.state) == (7, 7, "complete")
    assert model.privacy_.releases[0].charged_plan.n_steps == 7
    assert model.privacy_.epsilon(1e-5) == replace(plan, n_steps=7).epsilon(1e-5) > plan.epsilon(1e-5)
    assert model.privacy_.event() == replace(plan, n_steps=7).event()


def test_a_finished_checkpoint_gives_its_posterior_and_costs_nothing(tmp_path):
    ledger = PrivacyLedger(tmp_path / "a.ledger", 5.0, 1e-5, "coins")
    path = tmp_path / "fit.vips"
    model = BetaBernoulli(privacy=PLAN).fit(COINS, ledger=ledger, checkpoint=path)
    spent = ledger.spent()
    with pytest.warns(PrivacyWarning, match="finished fit"):
        again = BetaBernoulli(privacy=PLAN).fit(COINS, ledger=ledger, checkpoint=path)
    np.testing.assert_array_equal(again.last_posterior_["a"], model.last_posterior_["a"])
    assert ledger.spent() == spent


def begun(tmp_path, ledger=None, model=None):
    path = tmp_path / "fit.vips"
    with pytest.raises(Stop):
        stopped_after(model or BetaBernoulli(privacy=PLAN, random_state=0), 2).fit(
            COINS, checkpoint=path, ledger=ledger
        )
    return path


@pytest.mark.parametrize(
    ("model", "columns", "message"),
    [
        (SecondMoments(privacy=PLAN, random_state=0), 4, "model"),
        (BetaBernoulli(privacy=replace(PLAN, noise_multiplier=5.0), random_state=0), 4, "plan"),
        (BetaBernoulli(privacy=replace(PLAN, clip_norm=1.0), random_state=0), 4, "plan"),
        (BetaBernoulli(privacy=PLAN, random_state=1), 4, "parameter 'random_state'"),
        (BetaBernoulli(privacy=PLAN, random_state=0), 3, "n_features"),
        (BetaBernoulli(privacy=PLAN, random_state=0), list("abcd"), r"\(different: columns\)"),
    ],
)
def test_a_checkpoint_of_another_fit_is_refused_and_not_touched(tmp_path, model, columns, message):
    path = begun(tmp_path)
    before = path.read_bytes()
    X = pd.DataFrame(COINS, columns=columns) if isinstance(columns, list) else COINS[:, :columns]
    with pytest.raises(CheckpointError, match=message):
        model.fit(X, checkpoint=path)
    assert path.read_bytes() == before


def test_foreign_and_torn_checkpoints_are_refused_and_not_touched(tmp_path):
    path = begun(tmp_path)
    whole = path.read_bytes()
    saved = tmp_path / "model.vips"
    BetaBernoulli(privacy=PLAN).fit(COINS).save(saved)
    header = zipfile.ZipFile(path).read("header.json").decode()
    newer = tmp_path / "newer"
    with zipfile.ZipFile(newer, "w") as archive:
        archive.writestr("header.json", header.replace('"version": 1', '"version": 2'))
    damaged = bytearray(whole)
    damaged[whole.rindex(b"\x93NUMPY") + 128] ^= 1  # the first byte of the last array
    for content in (b"", b"hello", whole[:-30], bytes(damaged), saved.read_bytes(), newer.read_bytes()):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match="not touched"):
            BetaBernoulli(privacy=PLAN, random_state=0).fit(COINS, checkpoint=path)
        assert path.read_bytes() == content
    with pytest.raises(CheckpointError, match="folder"):
        BetaBernoulli(privacy=PLAN).fit(COINS, checkpoint=tmp_path / "missing" / "fit.vips")


def test_ledger_and_checkpoint_belong_together(tmp_path):
    ledger = PrivacyLedger(tmp_path / "a.ledger", 5.0, 1e-5, "coins")
    other = PrivacyLedger(tmp_path / "b.ledger", 5.0, 1e-5, "coins")
    path = begun(tmp_path, ledger)
    for wrong, says in ((None, "was begun with a ledger"), (other, "knows of no run")):
        with pytest.raises(ValueError, match=says):
            BetaBernoulli(privacy=PLAN, random_state=0).fit(COINS, checkpoint=path, ledger=wrong)
    path.unlink()
    begun(tmp_path)
    with pytest.raises(CheckpointError, match="without a ledger"):
        BetaBernoulli(privacy=PLAN, random_state=0).fit(COINS, checkpoint=path, ledger=ledger)
    assert len(ledger.runs()) == 1
    assert other.runs() == []


def test_a_full_disk_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    path = begun(tmp_path)
    before = path.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        BetaBernoulli(privacy=PLAN, random_state=0).fit(COINS, checkpoint=path)
    assert path.read_bytes() == before
    monkeypatch.undo()
    model = BetaBernoulli(privacy=PLAN, random_state=0).fit(COINS, checkpoint=path)
    assert model.privacy_.releases[0].repeated_steps == 1  # its partial file could be seen
    assert names_in(tmp_path) == ["fit.vips"]


def test_a_checkpoint_that_names_a_cheaper_run_is_refused(tmp_path):
    ledger = PrivacyLedger(tmp_path / "a.ledger", 5.0, 1e-5, "coins")
    cheap = ledger.charge(replace(PLAN, noise_multiplier=1e3))
    path = begun(tmp_path)
    rewritten(path, run=cheap.run, step=1)
    with pytest.raises(ValueError, match=r"another plan"):
        BetaBernoulli(privacy=PLAN, random_state=0).fit(COINS, checkpoint=path, ledger=ledger)


@pytest.mark.parametrize(
    "forged",
    [
        *({"step": value} for value in (0, -1, 7, 2.0, "2", None)),
        *({"noise_std": value} for value in (None, {"heads": [1.0] * 4, "count": 1.0})),
        *({"noise_std": {"heads": value, "count": 1.0}} for value in ("0", float("nan"), -1.0, 1e300)),
        {"repeated": -1}, {"repeated": True}, {"run": 7}, {"parameters": [1]}, {"plan": None}, {"n_features": []},
        {"model": {"a": 1}}, {"arrays": ["average/heads"]}, {"arrays": 3}, {"arrays": None},
        *(("average/heads", value) for value in (1j, "a", np.nan, np.inf, 1e300)),
        *(("posterior/a", value) for value in (1j, "a", np.nan, 1e300)),
    ],
    ids=str,
)  # fmt: skip
def test_forged_checkpoints_are_refused_in_one_way_and_not_touched(tmp_path, forged):
    """Forged are fields of the header, or an array."""
    path = begun(tmp_path)
    if isinstance(forged, dict):
        rewritten(path, **forged)
    else:
        with_array(path, *forged)
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match="not touched") as refused:
        BetaBernoulli(privacy=PLAN, random_state=0).fit(COINS, checkpoint=path)
    assert "step" not in forged or "names step" in str(refused.value)
    assert path.read_bytes() == before


def with_array(path, name, value):
    """Rewrite the file with one array of this value and its type."""
    edited(path, "checkpoint", lambda _, arrays: arrays.update({name: np.full(arrays[name].shape, value)}))


@pytest.mark.parametrize(
    ("name", "value"),
    [("zooms_n_zooms", value) for value in (-1, 10, 1e99, 2.5)]
    + [("zooms_scale", value) for value in (0, 1e-320, -1.0, np.iinfo(np.int64).min, np.longdouble(1e200))]
    + [("search_kept_counts", value) for value in (0, 5, 10, 1e99, 0.5, -1.0)]
    + [("search_kept_informations", 1e99), ("search_kept_sizes", 1e20), ("search_unit", 1e-320), ("step", 7)],
)
def test_forged_posteriors_of_a_search_are_refused_in_one_way_and_not_touched(tmp_path, searched, name, value):
    path = shutil.copy(searched, tmp_path / "fit.vips")
    with_array(path, f"posterior/{name}", value)
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match=r"not touched"):
        regression().fit(COINS, COINS[:, 0], checkpoint=path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("name", "value"),
    [("zooms_scale", value) for value in (3, True, np.longdouble(3.0), np.uint64(2**40))]
    + [("zooms_shift", -7), ("zooms_n_zooms", 0), ("zooms_n_zooms", True), ("zooms_seen", True)]
    + [("search_kept_scores", -7), ("search_kept_points", np.longdouble(1.0)), ("search_kept_sizes", 3)],
)
def test_a_fit_goes_on_from_numbers_of_any_type(tmp_path, searched, name, value):
    path = shutil.copy(searched, tmp_path)
    with_array(path, f"posterior/{name}", value)
    if name == "zooms_shift":  # which is written twice
        with_array(path, "posterior/centre", value)
    regression().fit(COINS, COINS[:, 0], checkpoint=path)


def regression():
    """Counts, with two zooms, the second of which releases rates, and four scores."""
    return BayesianNegativeBinomialRegression(max_norm=1.0, max_count=1, privacy=SEARCHED)


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """Its checkpoint, of a fit killed after its first scores."""
    path = tmp_path_factory.mktemp("searched") / "fit.vips"
    with pytest.raises(Stop):
        stopped_after(regression(), 3).fit(COINS, COINS[:, 0], checkpoint=path)
    return path


@pytest.mark.parametrize("largest", [1.0, 1e17, -9e17])
def test_a_fit_goes_on_from_information_about_a_single_direction(tmp_path, searched, largest):
    path, name = shutil.copy(searched, tmp_path), "posterior/search_kept_informations"

    def forge(_, arrays):
        factors = np.linspace(0.0, 1.0, arrays[name].shape[-1])
        arrays[name] = np.broadcast_to(largest * np.outer(factors, factors), arrays[name].shape).copy()

    edited(path, "checkpoint", forge)
    assert np.isfinite(regression().fit(COINS, COINS[:, 0], checkpoint=path).posterior_.mean).all()


@pytest.mark.parametrize("n_zooms", [0, 1, 2, 4])
def test_the_last_zoom_releases_rates_whatever_a_file_says_of_those_before(tmp_path, n_zooms):
    path = tmp_path / "fit.vips"
    with pytest.raises(Stop):
        stopped_after(regression(), 1).fit(COINS, COINS[:, 0], checkpoint=path)
    with_array(path, "posterior/zooms_n_zooms", n_zooms)
    assert regression().fit(COINS, COINS[:, 0], checkpoint=path).noisy_totals_.average["rates"].all()


# -- what a kill leaves beside a checkpoint ---------------------------------------------------------------------


def killed_while_writing(path, monkeypatch, step, ledger=None):
    """A fit that dies when it has written the checkpoint of ``step`` and not yet renamed it; the partial file stays."""
    original = os.replace

    def replace_or_die(partial, target):
        if read_archive(partial, "checkpoint")[0]["step"] == step:
            raise Stop
        original(partial, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace_or_die)
        with pytest.raises(Stop):
            BetaBernoulli(privacy=PLAN, random_state=0).fit(COINS, checkpoint=path, ledger=ledger)


def names_in(folder):
    """But that of the lock file."""
    return sorted(file.name for file in folder.iterdir() if not file.name.endswith(".lock"))


@pytest.mark.parametrize("step", [1, 3])
def test_steps_that_were_left_beside_a_checkpoint_are_counted_and_removed(tmp_path, monkeypatch, step):
    path = tmp_path / "fit.vips"
    totals = set()
    for _ in range(3):
        killed_while_writing(path, monkeypatch, step)
        assert set(names_in(tmp_path)) - {"fit.vips"} == {".fit.vips.partial"}
        totals.add(read_archive(tmp_path / ".fit.vips.partial", "checkpoint")[1]["noisy/heads"].tobytes())
    assert len(totals) == 3  # three releases of one step, none of which the finished fit uses
    model = BetaBernoulli(privacy=PLAN, random_state=0).fit(COINS, checkpoint=path)
    assert names_in(tmp_path) == ["fit.vips"]
    assert model.privacy_.releases[0].repeated_steps == 3
    assert model.privacy_.epsilon(1e-5) == replace(PLAN, n_steps=9).epsilon(1e-5) > PLAN.epsilon(1e-5)
    assert model.privacy_.event() == replace(PLAN, n_steps=9).event()
    assert "3 steps were released twice" in str(model.privacy_)
    model.save(tmp_path / "m")
    assert vips.load(tmp_path / "m", BetaBernoulli).privacy_.epsilon(1e-5) == model.privacy_.epsilon(1e-5)


def test_a_folder_or_a_link_where_checkpoints_are_written_first(tmp_path):
    """The error comes before a step is released."""
    partial = tmp_path / ".fit.vips.partial"
    partial.mkdir()
    with pytest.raises(CheckpointError, match="is a folder"):
        BetaBernoulli(privacy=PLAN).fit(COINS, checkpoint=tmp_path / "fit.vips")
    with pytest.raises(CheckpointError, match="is a folder"):
        BetaBernoulli(privacy=PLAN).fit(COINS, checkpoint=tmp_path)
    partial.rmdir()
    partial.symlink_to(tmp_path / "nowhere")
    BetaBernoulli(privacy=PLAN).fit(COINS, checkpoint=tmp_path / "fit.vips")
    assert names_in(tmp_path) == ["fit.vips"]


def test_a_kill_while_partial_files_are_counted_loses_no_count(tmp_path, monkeypatch):
    path = tmp_path / "fit.vips"
    killed_while_writing(path, monkeypatch, 2)
    for name in ("replace", "unlink"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, lambda *_, **__: exec("raise Stop", globals()))
            with pytest.raises(Stop):
                BetaBernoulli(privacy=PLAN, random_state=0).fit(COINS, checkpoint=path)
    for file in tmp_path.glob(".fit.vips.?*.partial"):  # partial files of the count itself, which show no other step
        file.unlink()
    (release,) = BetaBernoulli(privacy=PLAN, random_state=0).fit(COINS, checkpoint=path).privacy_.releases
    assert release.repeated_steps in (1, 2)


def test_with_a_ledger_only_the_ledger_counts_partial_files(tmp_path, monkeypatch):
    path, ledger = tmp_path / "fit.vips", PrivacyLedger(tmp_path / "a.ledger", 5.0, 1e-5, "coins")
    killed_while_writing(path, monkeypatch, 3, ledger)
    assert ledger.runs()[0].released == 3  # the entry came first
    model = BetaBernoulli(privacy=PLAN, random_state=0).fit(COINS, checkpoint=path, ledger=ledger)
    assert names_in(tmp_path) == ["a.ledger", "fit.vips"]
    assert model.privacy_.releases[0].repeated_steps == 1
    assert model.privacy_.epsilon(1e-5) == replace(PLAN, n_steps=7).epsilon(1e-5)


def test_a_second_fit_over_one_checkpoint_does_not_mix_with_the_first(tmp_path):
    """The second fit removes the file that the first is writing; the first stops, and neither leaves a torn file."""
    path = tmp_path / "fit.vips"

    class Disturbed(BetaBernoulli):
        def to_posterior(self, average, noise_std, previous):
            if previous is not None and path.exists() and not seen:
                seen.append(1)
                (tmp_path / ".fit.vips.partial").write_bytes(b"of the other fit")
            return super().to_posterior(average, noise_std, previous)

    seen = []
    with pytest.raises(FileExistsError):
        Disturbed(privacy=PLAN, random_state=0).fit(COINS, checkpoint=path)
    assert read_archive(path, "checkpoint")[0]["step"] == 1

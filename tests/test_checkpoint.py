"""Checkpoints, resumed fits, and saved models."""

import json
import warnings
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import vips
from tests.laws.cases import CASES, BetaBernoulli, SecondMoments, arguments
from vips import (
    LatentDirichletAllocation,
    PolynomialAveraging,
    PrivacyLedger,
    PrivacyPlan,
    PrivacyWarning,
    RobbinsMonro,
)
from vips.checkpoint import CheckpointError

PLAN = PrivacyPlan(noise_multiplier=4.0, sampling_rate=0.5, n_steps=6, clip_norm=1.5)
COINS = np.random.default_rng(0).integers(0, 2, (60, 4)).astype(float)


class Stop(Exception):
    """Ends a fit."""


def stopped_after(model, step):
    """The model, with a fit that ends before it uses the total of step ``step + 1``."""
    original = model.to_posterior
    calls = []

    def to_posterior(average, noise_std, previous):
        calls.append(1)
        if len(calls) == step + 2:  # the first posterior is no step
            raise Stop
        return original(average, noise_std, previous)

    model.to_posterior = to_posterior
    return model


def arrays_of(model):
    posterior = model.posterior_
    return posterior if isinstance(posterior, dict) else posterior.to_arrays()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("noise", ["gaussian", "discrete"])
def test_a_resumed_fit_equals_the_undisturbed_one_where_noise_is_reproducible(case, noise, tmp_path):
    plan = replace(PLAN, clip_norm=case.clip_norm, reproducible_noise=True, noise=noise)
    records = arguments(case.make_records(40, np.random.default_rng(1)))
    path = tmp_path / "fit.vips"
    whole = case.make_model(privacy=plan, random_state=3).fit(*records)
    for step in (0, 1, 4):
        path.unlink(missing_ok=True)
        with pytest.raises(Stop):
            stopped_after(case.make_model(privacy=plan, random_state=3), step).fit(*records, checkpoint=path)
        assert path.exists() is (step > 0)
        resumed = case.make_model(privacy=plan, random_state=3).fit(*records, checkpoint=path)
        for name, value in arrays_of(whole).items():
            np.testing.assert_array_equal(arrays_of(resumed)[name], value)


def test_non_private_fits_can_be_resumed_too(tmp_path):
    path = tmp_path / "fit.vips"
    records = CASES[2].make_records(40, np.random.default_rng(1))
    plan = PrivacyPlan.non_private(sampling_rate=0.5, n_steps=5)

    def make():
        return LatentDirichletAllocation(3, random_state=0, privacy=plan)

    whole = make().fit(records)
    with pytest.raises(Stop):
        stopped_after(make(), 3).fit(records, checkpoint=path)
    np.testing.assert_array_equal(make().fit(records, checkpoint=path).components_, whole.components_)


def test_repeated_steps_of_a_private_fit_are_sampled_and_noised_afresh(tmp_path):
    path = tmp_path / "fit.vips"
    empty = COINS[:0]
    with pytest.raises(Stop):
        stopped_after(BetaBernoulli(privacy=PLAN), 3).fit(empty, checkpoint=path)
    kept = path.read_bytes()
    seen = []
    for _ in range(2):  # the same checkpoint twice: nothing in common after it
        path.write_bytes(kept)
        model = BetaBernoulli(privacy=PLAN)
        original = model.to_posterior
        averages = []
        model.to_posterior = lambda average, *rest, original=original, averages=averages: (
            averages.append(average["heads"].copy()) or original(average, *rest)
        )
        model.fit(empty, checkpoint=path)
        seen.append(np.array(averages[1:]))
    assert seen[0].shape == (3, 4)
    assert not np.isin(seen[0], seen[1]).any()


def test_a_checkpoint_holds_released_values_and_nothing_else(tmp_path):
    path = tmp_path / "fit.vips"
    plan = replace(PLAN, reproducible_noise=False)
    model = BetaBernoulli(privacy=plan, random_state=5).fit(COINS, checkpoint=path)
    with zipfile.ZipFile(path) as archive:
        arrays = ["average/heads", "average/count", "noisy/heads", "noisy/count", "posterior/a", "posterior/b"]
        assert sorted(archive.namelist()) == sorted(["header.json", *(f"{name}.npy" for name in arrays)])
        header = json.loads(archive.read("header.json"))
    assert set(header) == {
        "format", "version", "kind", "model", "parameters", "plan", "n_features", "run", "step", "noise_std", "arrays"
    }  # fmt: skip
    assert header["step"] == 6
    assert header["parameters"] == {"random_state": 5, "on_invalid": "drop"}
    assert "key" not in json.dumps(header)
    assert "60" not in json.dumps(header)  # nor the number of records
    np.testing.assert_array_equal(
        model.posterior_["a"], 1.0 + np.maximum(vips._archive.read_archive(path, "checkpoint")[1]["average/heads"], 0)
    )


def test_nothing_uses_a_step_before_ledger_and_checkpoint_have_it(tmp_path, monkeypatch):
    """sum → noise → ledger → checkpoint → next step, in this order and durably."""
    from vips import checkpoint, engine
    from vips.privacy import ledger as ledger_module

    log = []
    for owner, name, word in (
        (engine, "clipped_sum", "sum"),
        (PrivacyPlan, "add_noise", "noise"),
        (ledger_module.PrivacyLedger, "release", "ledger"),
        (checkpoint, "write_archive", "checkpoint"),
    ):
        original = getattr(owner, name)
        monkeypatch.setattr(
            owner, name, lambda *a, original=original, word=word, **k: (original(*a, **k), log.append(word))[0]
        )
    ledger = PrivacyLedger(tmp_path / "a.ledger", 5.0, 1e-5, "coins")
    BetaBernoulli(privacy=PLAN).fit(COINS, ledger=ledger, checkpoint=tmp_path / "fit.vips")
    assert log == ["sum", "noise", "ledger", "checkpoint"] * 6


def test_a_kill_between_ledger_and_checkpoint_is_charged_for_the_repeated_step(tmp_path, monkeypatch):
    from vips import checkpoint

    ledger = PrivacyLedger(tmp_path / "a.ledger", 5.0, 1e-5, "coins")
    path = tmp_path / "fit.vips"
    original = checkpoint.write_archive
    monkeypatch.setattr(checkpoint, "write_archive", lambda p, kind, header, arrays: (
        original(p, kind, header, arrays) if header["step"] < 3 else exec("raise Stop", globals())
    ))  # fmt: skip
    with pytest.raises(Stop):
        BetaBernoulli(privacy=PLAN).fit(COINS, ledger=ledger, checkpoint=path)
    monkeypatch.undo()
    run = ledger.runs()[0]
    assert (run.last_step, run.returned, run.charged) == (3, 3, 3)
    model = BetaBernoulli(privacy=PLAN).fit(COINS, ledger=ledger, checkpoint=path)
    run = ledger.runs()[0]
    assert (run.released, run.charged, run.state) == (7, 7, "complete")
    assert model.privacy_.to_dict()["ledger"]["charged_steps"] == 7
    assert model.privacy_.epsilon(1e-5) == replace(PLAN, n_steps=7).epsilon(1e-5) > PLAN.epsilon(1e-5)
    assert model.privacy_.event() == replace(PLAN, n_steps=7).event()


def test_a_finished_checkpoint_gives_its_posterior_and_costs_nothing(tmp_path):
    ledger = PrivacyLedger(tmp_path / "a.ledger", 5.0, 1e-5, "coins")
    path = tmp_path / "fit.vips"
    model = BetaBernoulli(privacy=PLAN).fit(COINS, ledger=ledger, checkpoint=path)
    spent = ledger.spent()
    with pytest.warns(PrivacyWarning, match="finished fit"):
        again = BetaBernoulli(privacy=PLAN).fit(COINS, ledger=ledger, checkpoint=path)
    np.testing.assert_array_equal(again.posterior_["a"], model.posterior_["a"])
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
    ],
)
def test_a_checkpoint_of_another_fit_is_refused_and_not_touched(tmp_path, model, columns, message):
    path = begun(tmp_path)
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match=message):
        model.fit(COINS[:, :columns], checkpoint=path)
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
    damaged[len(whole) // 2] ^= 1
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
    for wrong in (None, other):
        with pytest.raises(ValueError, match=r"with a ledger|knows of no run"):
            BetaBernoulli(privacy=PLAN, random_state=0).fit(COINS, checkpoint=path, ledger=wrong)
    path.unlink()
    begun(tmp_path)
    with pytest.raises(CheckpointError, match="without a ledger"):
        BetaBernoulli(privacy=PLAN, random_state=0).fit(COINS, checkpoint=path, ledger=ledger)
    assert len(ledger.runs()) == 1
    assert other.runs() == []


def test_a_full_disk_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    import os

    path = begun(tmp_path)
    before = path.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        BetaBernoulli(privacy=PLAN, random_state=0).fit(COINS, checkpoint=path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["fit.vips"]


# -- saved models -----------------------------------------------------------------------------------------------


def test_a_saved_topic_model_comes_back_whole(tmp_path):
    X = sp.csr_array(np.random.default_rng(0).poisson(1.0, (80, 6)))
    words = ["a", "b", "c", "d", "ö", "f"]
    plan = PrivacyPlan.from_epsilon(epsilon=2.0, delta=1e-5, sampling_rate=0.5, n_steps=3)
    model = LatentDirichletAllocation(
        2, vocabulary=words, privacy=plan, schedule=RobbinsMonro(2.0, 0.6), dtype=np.float64
    ).fit(X)
    path = tmp_path / "topics.vips"
    model.save(path)
    loaded = vips.load(path)
    assert type(loaded) is LatentDirichletAllocation
    np.testing.assert_array_equal(loaded.components_, model.components_)
    np.testing.assert_array_equal(loaded.transform(X), model.transform(X))
    assert loaded.top_words() == model.top_words()
    assert loaded.get_params() == model.get_params()
    assert str(loaded.privacy_) == str(model.privacy_)
    assert loaded.privacy_.to_dict() == model.privacy_.to_dict()
    assert loaded.privacy_.epsilon() == model.privacy_.epsilon()


def test_names_of_columns_are_saved(tmp_path):
    import pandas as pd

    X = pd.DataFrame(np.random.default_rng(0).poisson(1.0, (30, 3)), columns=["x", "y", "z"])
    model = LatentDirichletAllocation(2, random_state=0, schedule=PolynomialAveraging()).fit(X)
    model.save(tmp_path / "m")
    loaded = vips.load(tmp_path / "m")
    assert loaded.feature_names_in_.tolist() == ["x", "y", "z"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(loaded.transform(X), model.transform(X))


def test_models_of_ones_own_are_loaded_by_class(tmp_path):
    model = BetaBernoulli(privacy=PLAN).fit(COINS)
    model.save(tmp_path / "m")
    with pytest.raises(ValueError, match="model_class=MyModel"):
        vips.load(tmp_path / "m")
    loaded = vips.load(tmp_path / "m", model_class=BetaBernoulli)
    np.testing.assert_array_equal(loaded.posterior_["a"], model.posterior_["a"])
    assert loaded.privacy_.epsilon(1e-5) == model.privacy_.epsilon(1e-5)
    fixed = PrivacyPlan(
        noise_multiplier=8.0,
        n_steps=5,
        clip_norm=1.5,
        sampling="fixed",
        relation="replace_one",
        batch_size=20,
        n_records=60,
    )
    BetaBernoulli(privacy=fixed).fit(COINS).save(tmp_path / "m")
    assert vips.load(tmp_path / "m", BetaBernoulli).privacy_.plan == fixed


def test_what_cannot_be_saved_or_read_is_refused(tmp_path):
    from sklearn.exceptions import NotFittedError

    path = tmp_path / "m"
    with pytest.raises(NotFittedError):
        BetaBernoulli().save(path)
    model = LatentDirichletAllocation(2, schedule=lambda t: 1.0 / t).fit(COINS)
    with pytest.raises(TypeError, match="cannot be saved"):
        model.save(path)
    assert list(tmp_path.iterdir()) == []
    path.write_bytes(b"\x80\x04K\x01.")  # a pickle
    with pytest.raises(ValueError, match="not a file of vips"):
        vips.load(path)
    LatentDirichletAllocation(2, random_state=0).fit(COINS).save(path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["header.json"] = members["header.json"].replace(b'": "dtype"', b'": "unknown"', 1)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(ValueError, match="Unknown kind of setting"):
        vips.load(path)


def rewritten(path, **changes):
    """The file with another header, and arrays cut to one column."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    header = json.loads(members["header.json"]) | changes
    members["header.json"] = json.dumps(header).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def test_files_that_were_not_written_by_vips_do_no_harm(tmp_path):
    from vips._archive import read_archive, write_archive

    path = tmp_path / "m"
    LatentDirichletAllocation(2, vocabulary=4, random_state=0).fit(COINS).save(path)
    kept = path.read_bytes()
    for name in ("_ledger", "fit", "is_private", "components_"):
        path.write_bytes(kept)
        rewritten(path, learnt={name: 1})
        with pytest.raises(ValueError, match="not a fitted attribute"):
            vips.load(path)
    path.write_bytes(kept)
    header, arrays = read_archive(path, "model")
    write_archive(path, "model", header, arrays | {"concentration": arrays["concentration"][:, :1]})
    with pytest.raises(ValueError, match="A saved posterior has arrays"):
        vips.load(path)


@pytest.mark.parametrize("step", [0, -1, 7, 2.0, "2", None])
def test_a_checkpoint_with_an_impossible_step_is_refused(tmp_path, step):
    path = begun(tmp_path)
    rewritten(path, step=step)
    with pytest.raises(CheckpointError, match="names step"):
        BetaBernoulli(privacy=PLAN, random_state=0).fit(COINS, checkpoint=path)


def test_a_checkpoint_that_names_a_cheaper_run_is_refused(tmp_path):
    ledger = PrivacyLedger(tmp_path / "a.ledger", 5.0, 1e-5, "coins")
    cheap = ledger.charge(replace(PLAN, noise_multiplier=1e3))
    path = begun(tmp_path)
    rewritten(path, run=cheap.run, step=1)
    with pytest.raises(ValueError, match=r"another plan"):
        BetaBernoulli(privacy=PLAN, random_state=0).fit(COINS, checkpoint=path, ledger=ledger)

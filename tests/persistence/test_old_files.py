"""Files that version 0.1.0 wrote (``of_0_1_0/make.py``) are read, and fits that it began are finished."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import vips
from tests.persistence.of_0_1_0 import make as old
from tests.persistence.stopping import arrays_of

FOLDER = Path(old.__file__).parent


def expected(name, kind):
    """Arrays of a posterior, as the old version had them."""
    prefix = f"{name}/{kind}/"
    with np.load(FOLDER / "expected.npz") as file:
        return {key.removeprefix(prefix): file[key] for key in file.files if key.startswith(prefix)}


@pytest.mark.parametrize("name", old.MODELS)
def test_saved_models_are_read(name):
    model = vips.load(FOLDER / f"{name}.vips")
    arrays = expected(name, "saved")
    assert arrays
    if "word_scale" in arrays:  # a scale for each word; now there is one for each cell
        of_words, shape = arrays.pop("word_scale"), arrays["concentration"].shape
        arrays |= {
            "scale": np.tile(of_words, (shape[0], 1)),
            "average_scale": np.tile(arrays["average_scale"], (shape[0], 1)),
        }
    new = {key for key in arrays_of(model) if key.startswith("trail_")}  # of networks, for noise-aware posteriors
    assert arrays_of(model).keys() - new == arrays.keys()
    for key, value in arrays.items():
        np.testing.assert_array_equal(arrays_of(model)[key], value)
    assert replace(model.privacy_.plan, clip_norm=None) == old.PLAN
    assert 0.0 < model.privacy_.epsilon(1e-6) < np.inf


@pytest.mark.parametrize("name", old.MODELS)
def test_fits_that_were_begun_are_finished(name, tmp_path):
    path = tmp_path / "fit"
    shutil.copy(FOLDER / f"{name}.checkpoint", path)
    make, data = old.MODELS[name]
    plan = replace(old.REPRODUCIBLE, clip_norm=7.0) if name == "topics" else old.REPRODUCIBLE  # its default then
    model = make(plan)
    model.set_params(**model.settings_of_older_files)
    resumed = arrays_of(model.fit(*data(), checkpoint=path))
    for key, value in expected(name, "resumed").items():
        if name == "topics":  # whose steps count other cells than those of 0.1.0 did
            assert np.isfinite(resumed["concentration"]).all()
        else:
            np.testing.assert_allclose(resumed[key], value, rtol=1e-8, atol=1e-10)


def test_ledgers_are_continued(tmp_path):
    for name in ("letters.ledger", "charged.checkpoint"):
        shutil.copy(FOLDER / name, tmp_path)
    ledger = vips.PrivacyLedger(tmp_path / "letters.ledger", **old.TERMS)
    before = json.loads((FOLDER / "expected.json").read_text())
    assert [[run.state, run.charged, run.released] for run in ledger.runs()] == before["runs"]
    assert ledger.spent() == pytest.approx(before["spent"], rel=1e-9)

    make, data = old.MODELS["network"]
    make(old.PLAN).fit(*data(), ledger=ledger, checkpoint=tmp_path / "charged.checkpoint")
    last = ledger.runs()[-1]
    # the step after the checkpoint had been released, too: it was repeated
    assert (last.state, last.charged, last.released) == ("complete", 7, 7)

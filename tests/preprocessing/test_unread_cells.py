"""Cells that could not be read: an encoder that counts anyway says about how many, from noisy counts alone."""

import numpy as np
import pandas as pd
import pytest

import vips
from vips import BayesianLogisticRegression, PrivacyBudget
from vips.persistence.archive import read_archive, write_archive
from vips.preprocessing import TableEncoder, make_private_pipeline

BUDGET = PrivacyBudget(2.0, 1e-6)


def table(share, n=10_000, seed=0):
    rng = np.random.default_rng(seed)
    crp = pd.Series(rng.lognormal(2.0, 0.5, n).round(1).astype(str), dtype=object)
    crp[rng.random(n) < share] = "<5"
    crp[rng.random(n) < 0.2] = None
    return pd.DataFrame({"crp": crp, "age": rng.integers(18, 90, n)})


def fitted(share, **settings):
    return TableEncoder({"crp": "number", "age": "number"}, privacy=BUDGET).fit(table(share), **settings)


def test_the_share_of_unread_cells_is_released_and_reported(tmp_path):
    encoder = fitted(0.3)
    assert list(encoder.unread_) == ["crp"]
    assert encoder.unread_["crp"] == pytest.approx(0.3 * 0.8, abs=0.03)
    assert f"how many cells could not be read (about {encoder.unread_['crp']:.0%} of crp)" in str(encoder.privacy_)
    assert encoder.columns_["crp"][2:] == ("(missing)",)
    encoder.save(tmp_path / "encoder.vips")
    again = vips.load(tmp_path / "encoder.vips")
    assert again.unread_ == encoder.unread_
    assert str(again.privacy_) == str(encoder.privacy_)
    # an unread cell is a missing one for the fit
    rows = pd.DataFrame({"crp": ["<5", None, "12"], "age": [50, 50, 50]})
    features = encoder.transform(rows)
    np.testing.assert_array_equal(features[0], features[1])
    assert (features[0] != features[2]).any()


@pytest.mark.parametrize("share", [0.0, 1e-4])
def test_what_noise_hides_is_not_said(share):
    """One cell in ten thousand: at 3 standard deviations of noise, a count of a single record is hardly ever above."""
    assert sum("crp" in fitted(share).unread_ for _ in range(20)) <= 2  # 0.00135 each; more than two: 2e-6


def test_numbers_and_empty_texts_are_not_unread():
    frame = table(0.0).assign(crp=lambda frame: frame["crp"].where(frame["crp"].notna(), ""))
    frame["age"] = frame["age"].astype(float).where(frame["age"] > 30)
    encoder = TableEncoder({"crp": "number", "age": "number"}, privacy=PrivacyBudget(20.0, 1e-6)).fit(frame)
    assert encoder.unread_ == {}
    assert encoder.columns_["crp"][2:] == encoder.columns_["age"][2:] == ("(missing)",)


def test_the_share_is_noisy():
    """Two encoders of the same table differ, and so they do beside one record more."""
    assert len({fitted(0.3).unread_["crp"] for _ in range(5)}) == 5


def test_a_pipeline_says_it():
    frame = table(0.3)
    pipeline = make_private_pipeline(
        TableEncoder({"crp": "number", "age": (0, 110)}), BayesianLogisticRegression(), privacy=BUDGET, n_steps=2
    ).fit(frame, np.arange(len(frame)) % 2)
    assert "could not be read (about 2" in str(pipeline.privacy_)


def test_forged_shares_are_refused(tmp_path):
    fitted(0.3).save(tmp_path / "encoder.vips")
    header, arrays = read_archive(tmp_path / "encoder.vips", "encoder")
    for forged in ([["crp", 1.5]], [["crp", float("nan")]], [["other", 0.5]], [["crp", "x"]], 3):
        unread = {"__vips__": "dict", "value": forged} if isinstance(forged, list) else forged
        write_archive(tmp_path / "forged.vips", "encoder", {"encoder": header["encoder"] | {"unread": unread}}, arrays)
        with pytest.raises(ValueError, match=r"forged\.vips"):
            pytest.fail(f"{forged}: {vips.load(tmp_path / 'forged.vips').unread_}")

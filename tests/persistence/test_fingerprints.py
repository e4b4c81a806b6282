"""The fingerprint in a report is that of the file's arrays, for every class of models, and of encoders and classifiers."""

from dataclasses import replace

import numpy as np
import pytest

import vips
from tests.laws.cases import CASES, ONE_OF_EACH_CLASS, arguments
from tests.persistence.damage import edited
from tests.report.test_certificate_check import classifier, encoder, pipeline, stream
from vips import PrivacyPlan
from vips.persistence.fitted import contents, released_arrays

pytestmark = pytest.mark.usefixtures("few_iterations", "one_thread")


def fingerprints(fitted):
    return [release.sha256 for release in fitted.privacy_.releases]


@pytest.mark.parametrize("case", [case for case in CASES if case.name in ONE_OF_EACH_CLASS], ids=lambda case: case.name)
def test_what_is_read_has_the_fingerprint_of_what_was_fitted(case, tmp_path):
    plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=0.5, n_steps=2, clip_norm=case.clip_norm)
    records = case.make_records(30, np.random.default_rng(0))
    first, second = (case.make_model(privacy=plan, random_state=0).fit(*arguments(records)) for _ in range(2))
    first.save(tmp_path / "model.vips")
    again = vips.load(tmp_path / "model.vips", type(first))
    assert fingerprints(again) == fingerprints(first) != fingerprints(second)
    assert contents(again)[0] == contents(first)[0]  # parameters, learnt attributes and the report
    for name, value in released_arrays(first).items():
        np.testing.assert_array_equal(released_arrays(again)[name], value, err_msg=name)
    assert len(fingerprints(first)[0]) == 64
    again.save(tmp_path / "again.vips")
    assert fingerprints(vips.load(tmp_path / "again.vips", type(first))) == fingerprints(first)

    def change_the_last_bit(_, arrays):
        total = next(name for name in arrays if name.startswith("noisy_totals/"))
        arrays[total] = arrays[total].copy()
        arrays[total].flat[0] = np.nextafter(arrays[total].flat[0], np.inf)

    edited(tmp_path / "model.vips", "model", change_the_last_bit)
    assert fingerprints(vips.load(tmp_path / "model.vips", type(first))) != fingerprints(first)


@pytest.mark.parametrize("fit", [encoder, pipeline, classifier, stream], ids=lambda fit: fit.__name__)
def test_every_release_of_a_file_has_its_own(fit, tmp_path):
    fitted = fit(None)
    fitted.save(tmp_path / "saved.vips")
    assert fingerprints(vips.load(tmp_path / "saved.vips")) == fingerprints(fitted)
    assert all(fingerprints(fitted))


def test_tables_and_learnt_columns_are_in_it(tmp_path):
    fitted = classifier(None)
    fitted.save(tmp_path / "c.vips")

    def add_one(header, _):
        header["encoder"]["counts"][0]["value"]["value"][0]["value"][0] += 1.0

    edited(tmp_path / "c.vips", "pipeline", add_one)
    tables, fit = fingerprints(vips.load(tmp_path / "c.vips"))
    assert tables != fingerprints(fitted)[0]
    assert fit == fingerprints(fitted)[1]
    learnt = encoder(None)
    learnt.columns_ = {"age": (-1.0, learnt.columns_["age"][1]), "town": learnt.columns_["town"]}
    learnt.save(tmp_path / "e.vips")
    assert fingerprints(vips.load(tmp_path / "e.vips")) != fingerprints(learnt)


def test_a_fingerprint_in_the_file_is_not_believed(tmp_path):
    fitted = pipeline(None)
    releases = [replace(release, sha256="0" * 64) for release in fitted.privacy_.releases]
    right = fingerprints(fitted)
    fitted[-1].privacy_ = replace(fitted.privacy_, releases=tuple(releases))
    fitted[0].privacy_ = replace(fitted[0].privacy_, releases=(releases[0],))
    fitted.save(tmp_path / "forged.vips")
    assert fingerprints(vips.load(tmp_path / "forged.vips")) == right

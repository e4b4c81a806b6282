"""Files with flipped bytes, with other JSON and with other arrays: one kind of error, or of no consequence."""

from __future__ import annotations

import io
import json
import os
import random

import numpy as np
import pandas as pd
import pytest

import vips
from tests.memory import NOISE, peak_of
from tests.persistence.damage import changed, edited, flipped, members_of, zipped
from vips import (
    CheckpointError,
    DirichletMultinomial,
    LatentDirichletAllocation,
    PrivacyBudget,
    PrivacyPlan,
    PrivacyReport,
    StreamPlan,
)
from vips.exceptions import StreamError
from vips.persistence.archive import read_archive
from vips.persistence.settings import encode
from vips.preprocessing import TableEncoder, make_private_pipeline

pytestmark = pytest.mark.usefixtures("few_iterations", "one_thread")

PLAN = PrivacyPlan.from_epsilon(epsilon=0.5, delta=1e-6, sampling_rate=0.5, n_steps=2)
X = np.eye(3)[np.arange(60) % 3]
ODD = [
    None, True, 0, -1, 10**30, 1e308, float("nan"), float("inf"), "", "x", "\ud800", [], {}, [None],
    {"__vips__": "array"},
]  # fmt: skip


def damaged(whole, rng):
    """The bytes of a file with damage of one of three kinds."""
    members = members_of(whole)
    kind = rng.randrange(3 if len(members) > 1 else 2)
    if kind == 0:
        return flipped(whole, rng)
    if kind == 1:
        header = changed(json.loads(members["header.json"]), rng, ODD)
        return zipped(members | {"header.json": json.dumps(header)})
    name = rng.choice([name for name in members if name != "header.json"])
    array = np.load(io.BytesIO(members[name]))
    with np.errstate(all="ignore"):
        others = array.astype("U5"), array.reshape(-1)[:0], array.astype(complex), np.full(array.shape, np.nan)
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(rng.choice(others), order="C"), version=(1, 0), allow_pickle=False)
    return zipped(members | {name: file.getvalue()})


def refusals(path, use, error, n=60):
    """How many damaged files are refused by that error; any other one passes through."""
    whole, rng, refused = path.read_bytes(), random.Random(0), 0
    for _ in range(n):
        path.write_bytes(damaged(whole, rng))
        try:
            use()
        except error:
            refused += 1
    path.write_bytes(whole)
    return refused


PEOPLE, LABELS = pd.DataFrame({"age": np.linspace(20, 90, 200), "ward": ["A", "B"] * 100}), np.arange(200) % 2


def make_classifier():
    columns = {"age": (20, 90), "ward": ["A", "B"]}
    return vips.PrivateClassifier(columns, privacy=PrivacyBudget(8.0, 1e-5)).fit(PEOPLE, LABELS)


def make_pipeline():
    steps = TableEncoder({"age": "number", "ward": "category"}), vips.BayesianLogisticRegression()
    return make_private_pipeline(*steps, privacy=PrivacyBudget(8.0, 1e-5)).fit(PEOPLE, LABELS)


def make_encoder():
    return make_pipeline()[0]


def make_declared():
    return TableEncoder({"age": (20, 90), "ward": ["A", "B"]}).fit(PEOPLE)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", [make_pipeline, make_classifier, make_encoder, make_declared])
def test_models_and_encoders_of_tables(tmp_path, make):
    path, model = tmp_path / "m", make()
    model.save(path)

    def use():
        loaded = vips.load(path)
        if hasattr(loaded, "privacy_"):
            str(loaded.privacy_), loaded.privacy_.to_dict()
        if hasattr(loaded, "summary"):
            loaded.summary()
        if hasattr(loaded, "in_column_units"):
            loaded.get_feature_names_out(), loaded.in_column_units()

    assert refusals(path, use, ValueError) > 30


TABLE = np.random.default_rng(0).uniform(-0.5, 0.5, (300, 2))
ONE_STEP = PrivacyPlan.from_epsilon(epsilon=2.0, delta=1e-6, sampling_rate=1.0, n_steps=1)
STEPS = PrivacyPlan.from_epsilon(epsilon=2.0, delta=1e-6, sampling_rate=1.0, n_steps=6)
REGRESSIONS = {
    "two classes": vips.BayesianLogisticRegression(privacy=STEPS, max_norm=1.0),
    "diagonal": vips.BayesianLogisticRegression(privacy=STEPS, max_norm=1.0, covariance="diagonal"),
    "trials": vips.BayesianBinomialRegression(n_trials=2, privacy=STEPS, max_norm=1.0),
    "counts": vips.BayesianNegativeBinomialRegression(max_count=2, privacy=STEPS, max_norm=1.0),
    "numbers": vips.BayesianLinearRegression(penalty="ard", privacy=ONE_STEP, max_norm=1.0, target_range=(0.0, 2.0)),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", REGRESSIONS)
@pytest.mark.parametrize("n_values", [2, pytest.param(5, marks=pytest.mark.slow)])
@pytest.mark.repeated("2-trials", "2-counts")  # posteriors of the class of "two classes"
def test_regressions_of_numbers_that_no_fit_makes(tmp_path, n_values, kind):
    """Each array overwritten, and some with alternate signs: refused, or what users read of it can be computed."""
    path, refused = tmp_path / "m", 0
    REGRESSIONS[kind].fit(TABLE, np.arange(300) % 2).save(path)
    whole, arrays = path.read_bytes(), read_archive(path, "model")[1]
    for number, (name, array) in enumerate(arrays.items()):
        signs = np.where(np.arange(array.size).reshape(array.shape) % 2, 1.0, -1.0)
        forged = [0.0 * array, 1e300 + 0.0 * array, -1e99 + 0.0 * array, 1e99 * signs, 1e12 * array]
        for values in [*forged, *forged][number % 5 :][:n_values]:
            with np.errstate(all="ignore"):
                other = {name: values.astype(array.dtype)}
            path.write_bytes(whole)
            edited(path, "model", lambda _, kept, other=other: kept.update(other))
            try:
                model = vips.load(path)
            except ValueError as error:
                refused += "is not a file of vips that can be read here" in str(error) or pytest.fail(str(error))
                continue
            model.summary(), model.predict(TABLE), model.posterior_
    assert refused > n_values * len(arrays) / 10


@pytest.mark.parametrize("dtype", [complex, "U8"])
def test_kept_posteriors_that_hold_no_numbers_are_refused(tmp_path, dtype):
    path = tmp_path / "m"
    vips.CategoricalHMM(2, n_symbols=3, privacy=STEPS).fit([np.arange(3)] * 9).save(path)
    name = "steps/1/posterior/moves"
    edited(path, "model", lambda _, arrays: arrays.update({name: arrays[name].astype(dtype)}))
    with pytest.raises(ValueError, match="its posterior holds no numbers"):
        vips.load(path)


@pytest.mark.filterwarnings("ignore")
def test_checkpoints(tmp_path):
    path = tmp_path / "c"

    def use():
        LatentDirichletAllocation(2, vocabulary=3, privacy=PLAN).fit(X, checkpoint=path)

    use()
    assert refusals(path, use, CheckpointError) > 30


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["s", "s.secret"])
def test_streams(tmp_path, name):
    plan = StreamPlan(epsilon=1.0, delta=1e-6, n_batches=4)
    path = tmp_path / name

    def batch():
        DirichletMultinomial(privacy=plan).partial_fit(X, checkpoint=tmp_path / "s")

    batch()
    kept = {file.name: file.read_bytes() for file in tmp_path.iterdir()}

    def use():
        for other, content in kept.items():
            if other != name:
                (tmp_path / other).write_bytes(content)
        os.chmod(tmp_path / "s.secret", 0o600)
        batch()

    assert refusals(path, use, (StreamError, CheckpointError)) > 30


def test_reports():
    report = LatentDirichletAllocation(2, vocabulary=3, privacy=PLAN).fit(X).privacy_
    values, rng, refused = json.loads(report.to_json()), random.Random(0), 0
    for _ in range(150):
        try:
            read = PrivacyReport.from_json(json.dumps(changed(values, rng, ODD)))
            str(read), read.to_dict()
        except ValueError:
            refused += 1
    assert refused > 75


@pytest.mark.parametrize("kind", ["numbers", "categories"])
@pytest.mark.repeated("categories")
def test_a_small_forged_classifier_takes_little_memory(tmp_path, kind):
    """Cells by the thousand, in a file of 150 kB."""
    path, n, place = tmp_path / "c", 5_000, ["numbers", "categories"].index(kind)
    make_classifier().save(path)

    def with_many_cells(header, _):
        cells = header["encoder"]["tables"][place][1]["value"]
        cells[1 + place]["value"] = [float(i) for i in range(n + 1)] if kind == "numbers" else list(range(n - 1))
        header["encoder"]["counts"][place] = encode(np.ones((2, n + 1)))

    edited(path, "pipeline", with_many_cells)

    def load():
        if kind == "numbers":
            with pytest.raises(ValueError, match="more cells"):
                vips.load(path)
        else:
            vips.load(path)

    assert peak_of(load) < 400 * path.stat().st_size + 64 * NOISE

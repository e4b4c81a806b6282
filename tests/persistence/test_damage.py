"""Files with flipped bytes, with other JSON and with other arrays: one kind of error, or of no consequence."""

from __future__ import annotations

import copy
import io
import json
import os
import random
import zipfile

import numpy as np
import pytest

import vips
from tests.memory import NOISE, peak_of
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
from vips.persistence.archive import read_archive, write_archive
from vips.persistence.settings import encode

PLAN = PrivacyPlan.from_epsilon(epsilon=0.5, delta=1e-6, sampling_rate=0.5, n_steps=2)
X = np.eye(3)[np.arange(60) % 3]
ODD = [
    None,
    True,
    0,
    -1,
    10**30,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "x",
    "\ud800",
    [],
    {},
    [None],
    {"__vips__": "array"},
]


def changed(values, rng):
    """JSON with one value of another type or kind, or without it."""
    values, holder = copy.deepcopy(values), None
    holder = values
    while True:
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        key = rng.choice(keys)
        inner = holder[key]
        if isinstance(inner, dict | list) and inner and rng.random() < 0.7:
            holder = inner
            continue
        if rng.random() < 0.2:
            del holder[key]
        else:
            holder[key] = copy.deepcopy(rng.choice(ODD))
        return values


def archive(members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        for name, content in members.items():
            made.writestr(name, content)
    return file.getvalue()


def damaged(whole, rng):
    """The bytes of a file with damage of one of three kinds."""
    with zipfile.ZipFile(io.BytesIO(whole)) as file:
        members = {name: file.read(name) for name in file.namelist()}
    kind = rng.randrange(3 if len(members) > 1 else 2)
    if kind == 0:
        result = bytearray(whole)
        for _ in range(rng.choice([1, 1, 3, 20])):
            result[rng.randrange(len(whole))] = rng.randrange(256)
        return bytes(result[: rng.randrange(len(whole))]) if rng.random() < 0.2 else bytes(result)
    if kind == 1:
        header = changed(json.loads(members["header.json"]), rng)
        return archive(members | {"header.json": json.dumps(header)})
    name = rng.choice([name for name in members if name != "header.json"])
    array = np.load(io.BytesIO(members[name]))
    with np.errstate(all="ignore"):
        other = rng.choice(
            [array.astype("U5"), array.reshape(-1)[:0], array.astype(complex), np.full(array.shape, np.nan)]
        )
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(other, order="C"), version=(1, 0), allow_pickle=False)
    return archive(members | {name: file.getvalue()})


def refusals(path, use, error, n=100):
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


def make_classifier():
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame({"age": np.linspace(20, 90, 200), "ward": ["A", "B"] * 100})
    return vips.PrivateClassifier({"age": (20, 90), "ward": ["A", "B"]}, privacy=PrivacyBudget(8.0, 1e-5)).fit(
        table, np.arange(200) % 2
    )


def make_pipeline():
    pd = pytest.importorskip("pandas")
    from vips.preprocessing import TableEncoder, make_private_pipeline

    table = pd.DataFrame({"age": np.linspace(20, 90, 200), "ward": ["A", "B"] * 100})
    encoder = TableEncoder({"age": "number", "ward": "category"})
    pipeline = make_private_pipeline(encoder, vips.BayesianLogisticRegression(), privacy=PrivacyBudget(8.0, 1e-5))
    return pipeline.fit(table, np.arange(200) % 2)


def make_encoder():
    return make_pipeline()[0]


def make_declared():
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame({"age": [20.0], "ward": ["A"]})
    return vips.preprocessing.TableEncoder({"age": (20, 90), "ward": ["A", "B"]}).fit(table)


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

    assert refusals(path, use, ValueError) > 50


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
@pytest.mark.repeated("trials", "counts")  # posteriors of the class of "two classes"
def test_regressions_of_numbers_that_no_fit_makes(tmp_path, kind):
    """Each array overwritten, and some with alternate signs: refused, or what users read of it can be computed."""
    path, refused = tmp_path / "m", 0
    REGRESSIONS[kind].fit(TABLE, np.arange(300) % 2).save(path)
    header, arrays = read_archive(path, "model")
    forged = {name: header[name] for name in header if name not in ("kind", "format", "version", "arrays")}
    for name, array in arrays.items():
        signs = np.where(np.arange(array.size).reshape(array.shape) % 2, 1.0, -1.0)
        for values in (0.0 * array, 1e300 + 0.0 * array, -1e99 + 0.0 * array, 1e99 * signs, 1e12 * array):
            with np.errstate(all="ignore"):
                write_archive(path, "model", forged, arrays | {name: values.astype(array.dtype)})
            try:
                model = vips.load(path)
            except ValueError as error:
                refused += "is not a file of vips that can be read here" in str(error) or pytest.fail(str(error))
                continue
            model.summary(), model.predict(TABLE), model.posterior_
    assert refused > len(arrays) / 2


@pytest.mark.parametrize("dtype", [complex, "U8"])
def test_kept_posteriors_that_hold_no_numbers_are_refused(tmp_path, dtype):
    path = tmp_path / "m"
    vips.CategoricalHMM(2, n_symbols=3, privacy=STEPS).fit([np.arange(3)] * 9).save(path)
    header, arrays = read_archive(path, "model")
    forged = {name: header[name] for name in header if name not in ("kind", "format", "version", "arrays")}
    name = "steps/1/posterior/moves"
    write_archive(path, "model", forged, arrays | {name: arrays[name].astype(dtype)})
    with pytest.raises(ValueError, match="its posterior holds no numbers"):
        vips.load(path)


@pytest.mark.filterwarnings("ignore")
def test_checkpoints(tmp_path):
    path = tmp_path / "c"

    def use():
        LatentDirichletAllocation(2, vocabulary=3, privacy=PLAN).fit(X, checkpoint=path)

    use()
    assert refusals(path, use, CheckpointError) > 50


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

    assert refusals(path, use, (StreamError, CheckpointError)) > 50


def test_reports():
    report = LatentDirichletAllocation(2, vocabulary=3, privacy=PLAN).fit(X).privacy_
    values, rng, refused = json.loads(report.to_json()), random.Random(0), 0
    for _ in range(400):
        try:
            read = PrivacyReport.from_json(json.dumps(changed(values, rng)))
            str(read), read.to_dict()
        except ValueError:
            refused += 1
    assert refused > 200


@pytest.mark.parametrize("kind", ["numbers", "categories"])
def test_a_small_forged_classifier_takes_little_memory(tmp_path, kind):
    """Cells by the ten thousand, in a file of 300 kB."""
    path, n, place = tmp_path / "c", 10_000, ["numbers", "categories"].index(kind)
    make_classifier().save(path)
    header, arrays = read_archive(path, "pipeline")
    cells = header["encoder"]["tables"][place][1]["value"]
    cells[1 + place]["value"] = [float(i) for i in range(n + 1)] if kind == "numbers" else list(range(n - 1))
    forged = {name: header[name] for name in header if name not in ("kind", "format", "version", "arrays")}
    header["encoder"]["counts"][place] = encode(np.ones((2, n + 1)))
    write_archive(path, "pipeline", forged, arrays)

    def load():
        if kind == "numbers":
            with pytest.raises(ValueError, match="more cells"):
                vips.load(path)
        else:
            vips.load(path)

    assert peak_of(load) < 400 * path.stat().st_size + 64 * NOISE

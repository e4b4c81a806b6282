"""Saved models: what comes back, and what is refused."""

import json
import os
import subprocess
import sys
import textwrap
import warnings
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp

import vips
from tests.laws.cases import BetaBernoulli
from tests.persistence.damage import edited, members_of, rewritten, zipped
from tests.persistence.test_checkpoint import COINS, PLAN
from tests.plans import REPLACED
from vips import GaussianHMM, LatentDirichletAllocation, PolynomialAveraging, PrivacyPlan, RobbinsMonro


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
    np.testing.assert_array_equal(loaded.last_posterior_["a"], model.last_posterior_["a"])
    assert loaded.privacy_.epsilon(1e-5) == model.privacy_.epsilon(1e-5)
    BetaBernoulli(privacy=REPLACED).fit(COINS).save(tmp_path / "m")
    assert vips.load(tmp_path / "m", BetaBernoulli).privacy_.plan == REPLACED


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
    members = members_of(path.read_bytes())
    members["header.json"] = members["header.json"].replace(b'": "dtype"', b'": "unknown"', 1)
    path.write_bytes(zipped(members))
    with pytest.raises(ValueError, match="Unknown kind of setting"):
        vips.load(path)


def test_files_that_were_not_written_by_vips_do_no_harm(tmp_path):
    path = tmp_path / "m"
    LatentDirichletAllocation(2, vocabulary=4, random_state=0).fit(COINS).save(path)
    kept = path.read_bytes()
    for name in ("_ledger", "fit", "is_private", "components_"):
        path.write_bytes(kept)
        rewritten(path, learnt={name: 1})
        with pytest.raises(ValueError, match="not a fitted attribute"):
            vips.load(path)
    path.write_bytes(kept)
    edited(path, "model", lambda _, arrays: arrays.update(concentration=arrays["concentration"][:, :1]))
    with pytest.raises(ValueError, match="A saved posterior has arrays"):
        vips.load(path)


# -- forged and damaged files -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def topics(tmp_path_factory):
    """A small private topic model, as a file."""
    path = tmp_path_factory.mktemp("saved") / "topics.vips"
    words = ["a", "b", "c", "ö"]
    LatentDirichletAllocation(2, vocabulary=words, privacy=PLAN, schedule=RobbinsMonro()).fit(COINS).save(path)
    return path.read_bytes()


@pytest.mark.parametrize("every", [29, pytest.param(11, marks=pytest.mark.slow)])
def test_every_damaged_byte_and_truncation_is_an_error_of_one_kind_or_of_no_consequence(topics, tmp_path, every):
    """Bytes of the file in turn: headers of the zip, of arrays, JSON, numbers, checksums."""
    path = tmp_path / "m"
    rng, refused = np.random.default_rng(0), 0
    for place in range(0, len(topics), every):
        damaged = bytearray(topics)
        damaged[place] ^= 1 << rng.integers(8)
        path.write_bytes(damaged)
        refused += is_refused(path)
    assert refused > 0.8 * len(topics) / every  # zip files of many small arrays have many dates and attributes
    for length in range(0, len(topics), 2 * every):
        path.write_bytes(topics[:length])
        assert is_refused(path), length


def is_refused(path) -> bool:
    """Whether loading raises its one kind of error; otherwise the model can be used."""
    try:
        model = vips.load(path)
    except ValueError as error:
        return "is not a file of vips that can be read here" in str(error) or pytest.fail(str(error))
    model.top_words()
    return False


STRANGE = [None, 7, -1, 1e300, "", "x", [], {}, [1], {"a": 1}, True, {"__vips__": "float", "value": []},
           {"__vips__": "array", "dtype": "|V9", "value": []}, {"__vips__": "dtype", "value": "no"},
           {"__vips__": "PrivacyPlan", "value": {"x": 1}}, {"__vips__": "tuple", "value": 3}]  # fmt: skip


@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.slow)])
def test_every_value_of_the_header_is_checked(topics, tmp_path, every):
    """Each value, at any depth, replaced by strange ones: an error of one kind, or a model that can be used."""
    path = tmp_path / "m"
    header = json.loads(members_of(topics)["header.json"])
    refused = accepted = 0
    for i, place in enumerate(places(header)):
        for strange in STRANGE[i % every :: every]:
            path.write_bytes(topics)
            rewritten(path, **replaced(header, place, strange))
            if is_refused(path):
                refused += 1
            else:
                accepted += 1
    assert refused > 8 * accepted > 0


def places(value, path=()):
    """Every place in a JSON value, as a path of keys and indices."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


def replaced(value, path, new):
    """A copy with another value at a place."""
    if not path:
        return new
    copied = value.copy()
    copied[path[0]] = replaced(value[path[0]], path[1:], new)
    return copied


def forged(path, header=None, **members):
    """A file with these members, whatever they are, and a header that names them."""
    header = {"format": "vips", "version": 1, "kind": "model", "arrays": sorted(members)} | (header or {})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("header.json", json.dumps(header))
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)


def npy(dtype, shape, content=b""):
    """The file of an array, with any header."""
    text = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape!r}, }}".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + content


def deep(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("header.json", '{"a":' * 100_000)


def compressed(path):
    forged(path, a=npy("<f8", (1,), bytes(8)))
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros.npy", npy("<f8", (2**26,), bytes(2**29)))


def overlapping(path):
    """Thousands of members that all point to the same megabyte of the file."""
    forged(path, a=bytes(2**20))
    with zipfile.ZipFile(path, "a") as archive:
        first = archive.getinfo("a.npy")
        for i in range(3000):
            info = zipfile.ZipInfo(f"a{i}.npy")
            for name in ("header_offset", "file_size", "compress_size", "CRC"):
                setattr(info, name, getattr(first, name))
            archive.filelist.append(info)
            archive.NameToInfo[info.filename] = info
        archive._didModify = True


LONG_WORDS = {
    "__vips__": "array", "dtype": "<U9", "value": {"__vips__": "list", "value": ["x" * 7000, *[""] * 5000]},
}  # fmt: skip
BOMBS = {
    "an array that says it is large": lambda path: forged(path, a=npy("<f8", (10**9,))),
    "an array of huge words": lambda path: forged(path, a=npy("<U500000000", (1,))),
    "an array of objects": lambda path: forged(path, a=npy("|O", (1,), b"cos\nsystem\n(S'true'\ntR.")),
    "an array header of brackets": lambda path: forged(path, a=npy("<f8", "(").replace(b"'('", b"(" * 9000)),
    "a header of brackets": deep,
    "compressed zeros": compressed,
    "overlapping members": overlapping,
    "huge settings": lambda path: forged(
        path,
        {"class": "LatentDirichletAllocation", "learnt": {"n_features_in_": 30_000}, "report": None,
         "parameters": {"n_components": 20_000, "vocabulary": 30_000}},
        concentration=npy("<f8", (1, 1), bytes(8)),
    ),
    "huge settings of a regression": lambda path: forged(
        path,
        {"class": "BayesianLogisticRegression", "learnt": {"n_features_in_": 10**5}, "report": None, "parameters": {}},
        mean=npy("<f8", (1,), bytes(8)),
    ),
    "a few long words, many times": lambda path: forged(
        path,
        {"class": "LatentDirichletAllocation", "learnt": {f"a{i}_": LONG_WORDS for i in range(40)}, "report": None,
         "parameters": {"vocabulary": LONG_WORDS}},
    ),
    "huge settings of a network": lambda path: forged(
        path,
        {"class": "SigmoidBeliefNetwork", "learnt": {"n_features_in_": 5}, "report": None,
         "parameters": {"n_components": 20_000}},
        coupling=npy("<f8", (2, 2), bytes(32)),
    ),
}  # fmt: skip


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="needs a file without an end")
def test_devices_are_not_read():
    with pytest.raises(ValueError, match="device or a pipe"):
        vips.load("/dev/zero")


@pytest.mark.slow
def test_small_files_take_no_memory_and_no_time(tmp_path):
    """With 600 MB of address space beyond what imports take."""
    code = """
        import resource, sys, vips, numpy, vips.saving
        vips.LatentDirichletAllocation, vips.BayesianLogisticRegression, vips.SigmoidBeliefNetwork
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 600 * 2**20,) * 2)
        for path in sys.argv[1:]:
            try:
                vips.load(path)
            except ValueError as error:
                print(path.split("/")[-1], "|", repr(str(error)[-200:]))
    """
    for bomb, make in BOMBS.items():
        make(tmp_path / bomb)
        assert (tmp_path / bomb).stat().st_size < 10_000_000
    command = [sys.executable, "-c", textwrap.dedent(code), *(str(tmp_path / bomb) for bomb in BOMBS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    messages = dict(line.split(" | ") for line in done.stdout.splitlines())
    assert set(messages) == set(BOMBS)
    assert not [words for words in messages.values() if "MemoryError" in words]


@pytest.mark.parametrize(
    ("value", "noise_std"),
    [
        (np.nan, 1.0), (1e200, 1.0), (1.0, [1.0, [2.0]]), (1.0, [-1.0] * 3), (1.0, ["x"] * 3), (1.0, [1.0] * 7),
        (1.0, [1.0] * 3), (1.0, 1e200),
    ],
)  # fmt: skip
def test_noisy_totals_that_no_fit_makes_are_refused(tmp_path, value, noise_std):
    plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=2)
    model = vips.DirichletMultinomial(privacy=plan, max_total=3.0).fit(np.ones((20, 3)))
    next(iter(model.noisy_totals_.average.values())).fill(value)
    model.save(tmp_path / "model.vips")

    def forge(header, _):
        header["noise_std"][next(iter(header["noise_std"]))] = noise_std

    edited(tmp_path / "model.vips", "model", forge, to=tmp_path / "forged.vips")
    with pytest.raises(ValueError, match=r"noisy totals|deviations of noise"):
        vips.load(tmp_path / "forged.vips")


def test_a_file_of_many_columns_is_refused_before_memory_is_taken(tmp_path):
    path, model = tmp_path / "m.vips", GaussianHMM(2, covariance_type="diag", random_state=0)
    model.fit([np.ones((3, 2)), np.zeros((4, 2))]).save(path)
    edited(path, "model", lambda header, _: header["learnt"].update(n_features_in_=10**12))
    with pytest.raises(ValueError, match="its posterior is far smaller"):
        vips.load(path)

"""The secret half of a stream: what is kept where, after interruptions, forks and kills, and from forged files."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import vips.streams.secret as secret_module
import vips.streams.stream as stream_module
from tests.persistence.damage import edited
from tests.streams.test_partial_fit import COUNTS, plan
from vips import DirichletMultinomial, StreamError


def test_no_model_pickle_or_checkpoint_holds_the_state_of_the_noise(tmp_path):
    """A copy of a model, however made, goes on in this process only, and never draws twice for one batch."""
    path = tmp_path / "s.vips"
    model = DirichletMultinomial(privacy=plan(4)).partial_fit(COUNTS[:10], checkpoint=path)
    secret = secret_module.SecretFile(path).read()
    numbers = {x.tobytes() for x in secret.buffers["counts"]}
    for data in (pickle.dumps(model), path.read_bytes()):
        assert not any(number in data for number in numbers)
    assert oct(os.stat(f"{path}.secret").st_mode)[-3:] == "600"
    memory = DirichletMultinomial(privacy=plan(4)).partial_fit(COUNTS[:10])
    copied = pickle.loads(pickle.dumps(memory))
    memory.partial_fit(COUNTS[:10])
    with pytest.raises(StreamError, match="interrupted"):  # the copy gets the same release, not another draw
        copied.partial_fit(COUNTS[10:300])
    np.testing.assert_array_equal(copied.noisy_totals_.average["counts"], memory.noisy_totals_.average["counts"])
    memory.partial_fit(COUNTS[:10])
    memory.partial_fit(COUNTS[:10])
    with pytest.raises(StreamError, match="older copy"):
        copied.partial_fit(COUNTS[:10])
    if hasattr(os, "fork"):
        child = os.fork()
        if child == 0:
            try:
                DirichletMultinomial(privacy=plan(4))
                memory.partial_fit(None)
            except StreamError:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def interrupted_at(owner, attribute, monkeypatch, call, before=True):
    """Run ``call``, in which a Ctrl-C comes before (or after) the work of a function."""
    original = getattr(owner, attribute)

    def stop(*arguments, **named):
        value = None if before else original(*arguments, **named)
        raise KeyboardInterrupt from value

    with monkeypatch.context() as patch:
        patch.setattr(owner, attribute, stop)
        with pytest.raises(KeyboardInterrupt):
            call()


def test_an_interrupted_first_batch_leaves_nothing_in_the_way(tmp_path, monkeypatch):
    """Before the secret is in place the batch does not count, and no half a file is left."""
    path = tmp_path / "s.vips"
    model = DirichletMultinomial(privacy=plan())
    for owner, attribute in ((secret_module, "write_archive"), (os, "replace"), (os, "fsync")):
        interrupted_at(owner, attribute, monkeypatch, lambda: model.partial_fit(COUNTS[:9], checkpoint=path))
        assert not path.exists()
        assert not (tmp_path / "s.vips.secret").exists()
        assert not list(tmp_path.glob("*.partial"))
    model.partial_fit(COUNTS[:9], checkpoint=path)
    assert model.n_batches_seen_ == 1
    assert (tmp_path / "s.vips.secret").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("n_before", [0, 1])
def test_a_model_is_told_that_an_interrupted_batch_counts(tmp_path, monkeypatch, n_before):
    """The batch is not counted twice, wherever after the secret the Ctrl-C came."""
    owners = [(stream_module, "write_archive")]
    if not n_before:  # a later call shows the state before it, too
        owners += [(stream_module.CorrelatedNoise, "values"), (stream_module._Stream, "_show")]
    for i, (owner, attribute) in enumerate(owners):
        path = tmp_path / f"{i}.vips"
        model = DirichletMultinomial(privacy=plan())
        for k in range(n_before):
            model.partial_fit(COUNTS[k : k + 1], checkpoint=path)
        interrupted_at(owner, attribute, monkeypatch, lambda: model.partial_fit(COUNTS[5:9], checkpoint=path))  # noqa: B023
        with pytest.raises(StreamError, match=f"{n_before + 1} batches count"):
            model.partial_fit(COUNTS[5:9], checkpoint=path)
        assert model.n_batches_seen_ == n_before + 1
        assert model.partial_fit(COUNTS[9:], checkpoint=path).n_batches_seen_ == n_before + 2


def array(name, change):
    """A change of one array."""
    return lambda header, arrays: arrays.update({name: change(arrays[name].copy())})


def searched(**fields):
    """Other results of the search for noise."""
    return lambda header, _: header["public"]["searched"].update(fields)


FORGERIES = {
    "no noise any more": array("buffers/counts", lambda values: values * np.nan),
    "buffers in single precision": array("buffers/counts", lambda values: values.astype(np.float32)),
    "buffers of another model": array("buffers/counts", lambda values: values[:, :2]),
    "a buffer too few": array("buffers/counts", lambda values: values[1:]),
    "totals of another type": array("released/counts", lambda values: values.astype(np.complex128)),
    "totals that are not numbers": array("released/counts", lambda values: values + np.nan),
    "one total for all": array("released/counts", lambda values: values[:1]),
    "an array too many": lambda _, arrays: arrays.update({"other/counts": np.zeros(3)}),
    "a key of no length": array("register/key", lambda _: np.zeros(0, np.uint8)),
    "a person in no batch": lambda _, arrays: arrays.update(
        {"register/counts": np.zeros(1, np.int64), "register/digests": np.zeros((1, 16), np.uint8)}
    ),
    "a negative batch": lambda header, _: header.update(t=-1),
    "a batch that is no number": lambda header, _: header.update(t="2"),
    "a header without a plan": lambda header, _: header["public"].pop("plan"),
    "a header without noise": lambda header, _: header["public"].pop("searched"),
    "other draws": searched(of_draws=1.0),
    "less noise": searched(noise_multiplier=0.5),
    "another factorisation": searched(strategy={"theta": [0.5] * 4, "omega": [1e-300] * 4}),
    "another lattice": searched(lattice=[1e-3, 1024]),
}


@pytest.mark.parametrize("noise", ["gaussian", "discrete"])
@pytest.mark.parametrize("name", FORGERIES)
def test_forged_secrets_release_nothing(name, noise, tmp_path):
    path = tmp_path / "s.vips"
    stream = plan(noise=noise)
    DirichletMultinomial(privacy=stream).partial_fit(COUNTS[:10], checkpoint=path)
    edited(f"{path}.secret", "stream secret", FORGERIES[name], mode=0o600)
    before, model = (tmp_path / "s.vips.secret").read_bytes(), DirichletMultinomial(privacy=stream)
    with pytest.raises(StreamError):
        model.partial_fit(COUNTS[10:], checkpoint=path)
    assert (tmp_path / "s.vips.secret").read_bytes() == before
    assert not [attribute for attribute in vars(model) if attribute.endswith("_")]


def test_a_killed_process_leaves_no_half_a_secret_for_ever(tmp_path):
    """Its temporary file holds the state of the noise. Files of other names are left."""
    path, ours = tmp_path / "s.vips", tmp_path / f".s.vips.secret.{32 * 'a'}.partial"
    others = [tmp_path / f".s.vips.secret.x.{32 * 'a'}.partial", tmp_path / f".t.vips.secret.{32 * 'a'}.partial"]
    for file in (ours, *others):
        file.write_bytes(b"half")
    DirichletMultinomial(privacy=plan()).partial_fit(COUNTS[:10], checkpoint=path)
    assert not ours.exists()
    assert all(partial.exists() for partial in others)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_during_a_batch_keeps_nobody_waiting(tmp_path, monkeypatch):
    """Not the parent, whose lock the child has, too, as long as it lives; not the child, whose threads hold no lock."""
    summed, children = stream_module.engine.clipped_sum, []
    path, memory = tmp_path / "s.vips", DirichletMultinomial(privacy=plan()).partial_fit(COUNTS[:10])

    def forks(*arguments):
        child = os.fork()
        if child == 0:
            time.sleep(30)
            os._exit(0)
        children.append(child)
        return summed(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(stream_module.engine, "clipped_sum", forks)
        model = DirichletMultinomial(privacy=plan()).partial_fit(COUNTS[:10], checkpoint=path)
    model.partial_fit(COUNTS[:10], checkpoint=path)
    os.kill(children[0], signal.SIGKILL)
    os.waitpid(children[0], 0)
    inside, leave = threading.Event(), threading.Event()

    def waits(*arguments):
        inside.set()
        leave.wait(120)
        return summed(*arguments)

    with monkeypatch.context() as patch, ThreadPoolExecutor(1) as pool:
        patch.setattr(stream_module.engine, "clipped_sum", waits)
        pool.submit(memory.partial_fit, COUNTS[:10])
        assert inside.wait(120)
        child = os.fork()
        if child == 0:
            signal.alarm(10)
            try:
                memory.partial_fit(COUNTS[:10])
            except StreamError:
                os._exit(7)
            os._exit(0)
        leave.set()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7

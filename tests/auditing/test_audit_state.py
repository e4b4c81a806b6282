"""Audits find what a fit leaves behind in classes, modules, functions, the environment and memory."""

from __future__ import annotations

import contextvars
import functools
import importlib
import itertools
import os
import random
import sys
import threading
import types
import weakref
from dataclasses import dataclass, field

import numpy as np
import pytest

import vips
from tests.auditing.leaky import Coins, replayed, summary_of, with_e_step

pytestmark = pytest.mark.usefixtures("one_thread")

STATE = "classes and modules"
SEEN: list = []
TOTALS = {"n": 0}
BUFFER = np.zeros(3)
GENERATOR = np.random.default_rng(0)
COUNTER = itertools.count()
VARIABLE = contextvars.ContextVar("seen")
last = None


@dataclass
class Registry:
    entries: dict = field(default_factory=dict)


class Slotted:
    __slots__ = ("n",)


REGISTRY, SLOTTED = Registry(), Slotted()


def helper(n=0, seen=[0], *, key={}):  # noqa: B006
    return n


@functools.lru_cache
def cached(n):
    return n


def set_global(records):
    global last
    last = records.sum()


def set_first_global(records):
    global last
    if last is None:
        last = records.sum()


def made_closure():
    n = 0

    def count(records):
        nonlocal n
        n += records.sum()

    return count


def set_default(records):
    helper.__defaults__ = (records.sum(), [0])


OVER = threading.Event()


def start_thread(records):
    threading.Thread(target=OVER.wait, args=(60.0,), name=summary_of(records), daemon=True).start()


def make_module(records):
    sys.modules["made_module"] = types.ModuleType("made_module")
    sys.modules["made_module"].n = records.sum()


LEAKS = {
    "another class": lambda records: setattr(Registry, "n", records.sum()),
    "a base class": lambda records: setattr(vips.ConjugateExponentialModel, "n_seen", records.sum()),
    "a class of vips": lambda records: setattr(vips.Block, "n_seen", records.sum()),
    "a global": set_global,
    "a global, set once": set_first_global,
    "a list": lambda records: SEEN.append(records.sum()),
    "a dictionary": lambda records: TOTALS.update(n=TOTALS["n"] + records.sum()),
    "an array": lambda records: BUFFER.__setitem__(0, records.sum()),
    "an instance": lambda records: REGISTRY.entries.update(n=records.sum()),
    "a slot": lambda records: setattr(SLOTTED, "n", records.sum()),
    "a closure": made_closure(),
    "a default": set_default,
    "a mutable default": lambda records: helper.__defaults__[1].append(records.sum()),
    "a keyword default": lambda records: helper.__kwdefaults__["key"].update(n=records.sum()),
    "an attribute of a function": lambda records: setattr(helper, "n", records.sum()),
    "a cache": lambda records: cached(records.sum()),
    "a generator": lambda records: GENERATOR.normal(size=int((records > 0).sum())),
    "another module": lambda records: setattr(np, "n_seen", records.sum()),
    "sys.modules": make_module,
    "the environment": lambda records: os.environ.__setitem__("N_SEEN", summary_of(records)),
    "NumPy's generator": lambda records: np.random.normal(size=int((records > 0).sum())),  # noqa: NPY002
    "Python's generator": lambda records: random.seed(summary_of(records)),
    "a context variable": lambda records: VARIABLE.set(records.sum()),
    "a thread": start_thread,
}


@pytest.fixture
def _restored():
    OVER.clear()
    yield
    for owner in (np, vips.ConjugateExponentialModel, vips.Block):
        if "n_seen" in vars(owner):
            del owner.n_seen
    sys.modules.pop("made_module", None)
    OVER.set()


@pytest.mark.usefixtures("_restored")
@pytest.mark.parametrize("leak", LEAKS.values(), ids=LEAKS)
def test_state_that_depends_on_the_records_is_found(leak):
    findings = replayed(with_e_step(leak))
    assert findings[STATE].passed is False


def test_what_an_audit_found_is_put_back():
    before = (last, list(SEEN), dict(TOTALS), BUFFER.copy(), dict(REGISTRY.entries), GENERATOR.bit_generator.state)
    leaks = [
        LEAKS[name] for name in ("a global", "a list", "an array", "an instance", "the environment", "another module")
    ]
    assert replayed(with_e_step(lambda records: [leak(records) for leak in leaks]))[STATE].passed is False
    after = (last, list(SEEN), dict(TOTALS), BUFFER.copy(), dict(REGISTRY.entries), GENERATOR.bit_generator.state)
    assert str(before) == str(after)
    assert "N_SEEN" not in os.environ


class CountsInItsClass(Coins):
    seen = 0

    def expected_statistics(self, records, posterior):
        type(self).seen += records.sum()
        return super().expected_statistics(records, posterior)


class CachesByMethod(Coins):
    @functools.lru_cache  # noqa: B019
    def looked_up(self, n):
        return n

    def expected_statistics(self, records, posterior):
        self.looked_up(records.sum())
        return super().expected_statistics(records, posterior)


@pytest.mark.parametrize("model", [CountsInItsClass, CachesByMethod])
def test_attributes_of_the_models_class_are_compared(model):
    findings = replayed(model)
    assert findings[STATE].passed is False
    assert CountsInItsClass.seen == 0


def test_modules_that_the_model_imports_are_compared(tmp_path, monkeypatch):
    (tmp_path / "helper_of_a_model.py").write_text(
        "class Log:\n    entries = []\n\nLOG = Log()\n\ndef note(n):\n    LOG.entries.append(n)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("helper_of_a_model")

    def note(records):
        import helper_of_a_model

        helper_of_a_model.note(records.sum())

    findings = replayed(with_e_step(note))
    assert findings[STATE].passed is False
    assert sys.modules.pop("helper_of_a_model").LOG.entries == []


# -- what stays with the model --------------------------------------------------------------------


class KeepsAView(Coins):
    """Keeps an empty view, whose base is the whole array."""

    def fit(self, X, y=None, **options):
        super().fit(X, **options)
        self.like_ = np.append(X.ravel(), 0.0)[:0]
        return self


class KeepsAFunction(Coins):
    def fit(self, X, y=None, **options):
        super().fit(X, **options)
        n = len(X)
        self.describe_ = lambda: n
        return self


class KeepsAWeakReference(Coins):
    def fit(self, X, y=None, **options):
        super().fit(X, **options)
        REGISTRY.entries["note"] = Registry({"n": len(X)})
        self.note_ = weakref.ref(REGISTRY.entries["note"])
        return self


HIDDEN = weakref.WeakKeyDictionary()


class ChoosesWhatIsPickled(Coins):
    def expected_statistics(self, records, posterior):
        HIDDEN[self] = records.sum()
        return super().expected_statistics(records, posterior)

    def __getstate__(self):
        return {**vars(self), "n": HIDDEN.get(self)}


class HidesInTheReport(Coins):
    def fit(self, X, y=None, **options):
        super().fit(X, **options)
        object.__setattr__(self.privacy_, "n", len(X))
        return self


@pytest.mark.parametrize(
    "model", [KeepsAView, KeepsAFunction, KeepsAWeakReference, ChoosesWhatIsPickled, HidesInTheReport]
)
def test_whatever_the_model_holds_is_compared(model):
    findings = replayed(model)
    assert findings["fitted object"].passed is False


def test_records_that_stay_in_memory_are_found():
    """Even in an object that the audit cannot look into."""
    import queue

    kept = queue.SimpleQueue()
    findings = replayed(with_e_step(kept.put))
    assert findings["kept in memory"].passed is False


# -- state that tells nothing about the records ---------------------------------------------------


@functools.lru_cache
def public_table(n):
    return np.arange(n)


class CachesPublicThings(Coins):
    n_fits = 0
    table = None

    def initial(self, rng):
        type(self).n_fits += 1
        TOTALS["fits"] = TOTALS.get("fits", 0) + 1
        type(self).table = public_table(self.n_features_in_)
        os.environ["N_FEATURES"] = str(self.n_features_in_)
        vips.n_fits += 1
        GENERATOR.normal()
        return super().initial(rng)


def test_public_caches_and_counts_of_fits_pass(monkeypatch):
    monkeypatch.setattr(vips, "n_fits", 0, raising=False)
    findings = replayed(CachesPublicThings)
    assert findings[STATE].passed
    assert all(finding.passed is not False for finding in findings.values())


class Numbered(Coins):
    def initial(self, rng):
        next(COUNTER)
        return super().initial(rng)


def test_what_cannot_be_put_back_and_changes_with_every_fit_is_noted():
    findings = replayed(Numbered)
    assert findings[STATE].passed is None
    assert "COUNTER" in findings[STATE].measured

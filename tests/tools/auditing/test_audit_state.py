"""Audits find what a fit leaves behind in classes, modules, functions and the environment, and what the model holds."""

from __future__ import annotations

import functools
import itertools
import os
import random
import sys
import types
import weakref
from dataclasses import dataclass, field

import numpy as np
import pytest

from tests.tools.auditing.leaky import Coins, missed, replayed, summary_of

STATE = "classes and modules"
SEEN: list = []
TOTALS = {"n": 0}
BUFFER = np.zeros(3)
GENERATOR = np.random.default_rng(0)
COUNTER = itertools.count()
first = last = None


@dataclass
class Registry:
    entries: dict = field(default_factory=dict)


class Slotted:
    __slots__ = ("n",)


REGISTRY, SLOTTED = Registry(), Slotted()


def made_helper():
    def helper(n=0, seen=[0], *, key={}):  # noqa: B006
        return n

    return helper


DEFAULT, MUTABLE, KEYWORD, ATTRIBUTE = (made_helper() for _ in range(4))


@functools.lru_cache
def cached(n):
    return n


def set_global(records):
    global last
    last = records.sum()


def set_first_global(records):
    global first
    if first is None:
        first = records.sum()


def made_closure():
    n = 0

    def count(records):
        nonlocal n
        n += records.sum()

    return count


def set_default(records):
    DEFAULT.__defaults__ = (records.sum(), [0])


def make_module(records):
    sys.modules["made_module"] = types.ModuleType("made_module")
    sys.modules["made_module"].n = records.sum()


LEAKS = {
    "another class": lambda records: setattr(Registry, "n", records.sum()),
    "a global": set_global,
    "a global, set once": set_first_global,
    "a list": lambda records: SEEN.append(records.sum()),
    "a dictionary": lambda records: TOTALS.update(n=TOTALS["n"] + records.sum()),
    "an array": lambda records: BUFFER.__setitem__(0, records.sum()),
    "an instance": lambda records: REGISTRY.entries.update(n=records.sum()),
    "a slot": lambda records: setattr(SLOTTED, "n", records.sum()),
    "a closure": made_closure(),
    "a default": set_default,
    "a mutable default": lambda records: MUTABLE.__defaults__[1].append(records.sum()),
    "a keyword default": lambda records: KEYWORD.__kwdefaults__["key"].update(n=records.sum()),
    "an attribute of a function": lambda records: setattr(ATTRIBUTE, "n", records.sum()),
    "a cache": lambda records: cached(records.sum()),
    "a generator": lambda records: GENERATOR.normal(size=int((records > 0).sum())),
    "sys.modules": make_module,
    "the environment": lambda records: os.environ.__setitem__("N_SEEN", summary_of(records)),
    "NumPy's generator": lambda records: np.random.normal(size=int((records > 0).sum())),  # noqa: NPY002
    "Python's generator": lambda records: random.seed(summary_of(records)),
}


class Leaves(Coins):
    """Leaves something behind in the E-step."""

    def __init__(self, leak="", privacy=None, random_state=None):
        self.leak, self.privacy, self.random_state = leak, privacy, random_state

    def expected_statistics(self, records, posterior):
        LEAKS[self.leak](records)
        return super().expected_statistics(records, posterior)


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


# -- what stays with the model --------------------------------------------------------------------


class KeepsAFunction(Coins):
    def fit(self, X, y=None, **options):
        super().fit(X, **options)
        n = len(X)
        self.describe_ = lambda: n
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
        GENERATOR.normal()
        return super().initial(rng)


class Numbered(Coins):
    def initial(self, rng):
        next(COUNTER)
        return super().initial(rng)


HELD = [KeepsAFunction, ChoosesWhatIsPickled, HidesInTheReport]
PUBLIC = [CachesPublicThings, Numbered]


@pytest.fixture(scope="module")
def findings(forked):
    models = {kind.__name__: kind() for kind in (*PUBLIC, CountsInItsClass, CachesByMethod, *HELD)}
    return replayed(models | {name: Leaves(name) for name in LEAKS})


def test_state_that_depends_on_the_records_is_found(findings):
    assert not missed(findings, [*LEAKS, "CountsInItsClass", "CachesByMethod"], STATE)


def test_whatever_the_model_holds_is_compared(findings):
    assert not missed(findings, [kind.__name__ for kind in HELD], "fitted object")


def test_public_caches_and_counts_of_fits_pass(findings):
    of_models = [finding for kind in PUBLIC for finding in findings[kind.__name__].values()]
    assert not [str(finding) for finding in of_models if not finding.passed]

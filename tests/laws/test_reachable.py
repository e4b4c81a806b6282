"""Broken copies of the code in which more than noisy totals can be reached, and the walk that must find it."""

from __future__ import annotations

import weakref
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

from tests.laws import reachable
from tests.laws.cases import BY_NAME, BetaBernoulli
from tests.laws.walk import vips_globals, walk
from tests.mutants import add, check_notices
from vips import LatentDirichletAllocation
from vips.core import engine
from vips.models.regression.counts import BayesianBinomialRegression
from vips.models.topics import statistics as lda_statistics
from vips.models.topics.statistics import TopicPosterior
from vips.persistence import fitted
from vips.persistence.checkpoint import Journal

# -- the walk ---------------------------------------------------------------------------------------------------


class Slotted:
    __slots__ = ("inside",)

    def __init__(self, inside):
        self.inside = inside


class Attribute:
    def __init__(self, inside):
        self.inside = inside

    def method(self):
        return self.inside


def closure(inside):
    return lambda: inside


def default(inside):
    def function(here=inside):
        return here

    return function


def suspended(inside):
    def generator():
        yield inside.shape
        yield inside

    running = generator()
    next(running)
    return running


def view(inside):
    return np.concatenate([np.zeros(3), inside])[:3]


HIDING_PLACES = {
    "attribute": Attribute,
    "slot": Slotted,
    "bound method": lambda inside: Attribute(inside).method,
    "closure": closure,
    "default": default,
    "partial": lambda inside: partial(np.sum, a=inside),
    "suspended generator": suspended,
    "base of a view": view,
    "list in a dict": lambda inside: {"a": [inside]},
    "key": lambda inside: {tuple(inside): 1},
    "set": lambda inside: {inside.tobytes()},
    "array of objects": lambda inside: np.array([None, Attribute(inside)], dtype=object),
    "sparse matrix": lambda inside: sp.csr_array(inside[None]),
    "weak reference": lambda inside: (inside, weakref.ref(inside)),
    "generator of random numbers": lambda inside: np.random.default_rng(int(abs(inside[0]) * 1e6)),
    "iterator": lambda inside: iter([inside, inside]),
    "number": lambda inside: inside[0],
    "memory": lambda inside: memoryview(inside.tobytes()),
}


@pytest.mark.parametrize("hide", HIDING_PLACES.values(), ids=HIDING_PLACES)
def test_the_walk_finds_what_is_hidden(hide):
    rng = np.random.default_rng(0)
    one, other = rng.normal(size=3), rng.normal(size=3)
    assert walk(SimpleNamespace(a=hide(one))) != walk(SimpleNamespace(a=hide(other)))
    assert walk(SimpleNamespace(a=hide(one))) == walk(SimpleNamespace(a=hide(one.copy())))


def test_the_walk_enters_modules(monkeypatch):
    before = vips_globals()
    assert len(before) > 1000
    assert vips_globals() == before
    add(monkeypatch, lda_statistics, "kept", [np.ones(3)])
    assert vips_globals() != before


# -- mutants ----------------------------------------------------------------------------------------------------


def with_exact_totals(patch) -> dict:
    """The engine's exact totals, kept in a dict for the mutant to use."""
    kept, original = {}, engine.clipped_sum

    def mutant(*arguments):
        kept["total"] = {name: np.asarray(value, float) for name, value in original(*arguments).items()}
        return original(*arguments)

    patch.setattr(engine, "clipped_sum", mutant)
    return kept


def changed_commit(patch, change):
    original = Journal.commit

    def commit(self, step, noisy, average, noise_std, *state):
        return original(self, step, *change(self, step, noisy, average, noise_std), *state)

    patch.setattr(Journal, "commit", commit)


def a_checkpoint_holds_exact_totals(patch):
    kept = with_exact_totals(patch)

    def change(journal, step, noisy, average, noise_std):
        return noisy | {f"exact {name}": value for name, value in kept["total"].items()}, average, noise_std

    changed_commit(patch, change)


def a_checkpoint_holds_exact_totals_for_noisy_ones(patch):
    kept = with_exact_totals(patch)
    changed_commit(patch, lambda journal, step, noisy, average, noise_std: (kept["total"], average, noise_std))


def a_checkpoint_says_how_much_was_clipped(patch):
    kept = with_exact_totals(patch)

    def change(journal, step, noisy, average, noise_std):
        journal._header = journal._header | {"run": str(sum(np.abs(value).sum() for value in kept["total"].values()))}
        return noisy, average, noise_std

    changed_commit(patch, change)


def a_file_beside_the_checkpoint(patch):
    kept = with_exact_totals(patch)

    def change(journal, step, noisy, average, noise_std):
        np.savez(journal._path.with_name("debug.npz"), **kept["total"])
        return noisy, average, noise_std

    changed_commit(patch, change)


def keeping(patch, cls, keep):
    """Call ``keep(model, records)`` for every chunk."""
    original = cls.expected_statistics

    def mutant(self, records, posterior):
        keep(self, records)
        return original(self, records, posterior)

    patch.setattr(cls, "expected_statistics", mutant)


def a_model_keeps_the_last_chunk(patch):
    keeping(patch, LatentDirichletAllocation, lambda model, documents: setattr(model, "_documents", documents))


def a_regression_keeps_the_last_chunk(patch):
    keeping(patch, BayesianBinomialRegression, lambda model, records: setattr(model, "last_", records.y.sum()))


def a_class_keeps_the_last_chunk(patch):
    add(patch, LatentDirichletAllocation, "last", None)
    keeping(patch, LatentDirichletAllocation, lambda model, documents: setattr(type(model), "last", documents))


def a_module_keeps_the_last_chunk(patch):
    add(patch, lda_statistics, "_cache", {})
    keeping(
        patch, LatentDirichletAllocation, lambda model, documents: lda_statistics._cache.update(last=documents.data)
    )


def a_pickle_takes_the_last_chunk_along(patch):
    """No attribute shows the chunk."""
    last, original = {}, BetaBernoulli.__getstate__
    keeping(patch, BetaBernoulli, lambda model, records: last.update(chunk=records))
    patch.setattr(BetaBernoulli, "__getstate__", lambda self: original(self) | last)


def a_posterior_carries_the_exact_total(patch):
    kept, original = with_exact_totals(patch), LatentDirichletAllocation.to_posterior

    def mutant(self, average, noise_std, previous):
        posterior = original(self, average, noise_std, previous)
        posterior.exact = kept.get("total")
        return posterior

    patch.setattr(LatentDirichletAllocation, "to_posterior", mutant)


def a_posterior_is_a_view_beside_the_exact_total(patch):
    """Only the memory behind its array shows the exact total."""
    kept, original = with_exact_totals(patch), TopicPosterior.__init__

    def mutant(self, concentration, *arguments):
        original(self, concentration, *arguments)
        if kept:
            self.concentration = np.stack([self.concentration, kept["total"]["topic_word"]])[0]

    patch.setattr(TopicPosterior, "__init__", mutant)


def a_posterior_refers_to_statistics(patch):
    """And through them to the chunk and to every document's γ."""
    original = LatentDirichletAllocation.expected_statistics

    def mutant(self, records, posterior):
        statistics = original(self, records, posterior)
        self._statistics = statistics
        return statistics

    patch.setattr(LatentDirichletAllocation, "expected_statistics", mutant)


def a_report_counts_the_records(patch):
    original, prepare = BetaBernoulli.describe, BetaBernoulli.records_of
    seen = {}

    def records_of(self, X, y):
        seen["n"] = X.shape[0]
        return prepare(self, X, y)

    patch.setattr(BetaBernoulli, "records_of", records_of)
    patch.setattr(
        BetaBernoulli, "describe", lambda self: original(self) | {"declared_public": (f"{seen['n']} records",)}
    )


def a_saved_model_holds_exact_totals(patch):
    kept, original = with_exact_totals(patch), fitted.write_archive

    def mutant(path, kind, header, arrays):
        original(path, kind, header, arrays | {f"debug/{name}": value for name, value in kept["total"].items()})

    patch.setattr(fitted, "write_archive", mutant)


def noisy_totals_are_the_exact_ones(patch):
    kept, original = with_exact_totals(patch), engine.run

    def mutant(*arguments, **named):
        posterior, noisy = original(*arguments, **named)
        return posterior, engine.NoisyTotals(kept["total"], noisy.noise_std)

    patch.setattr(engine, "run", mutant)


@pytest.mark.parametrize(
    ("mutant", "case", "says"),
    [
        (a_checkpoint_holds_exact_totals, "lda", r"checkpoint after step 1.*exact topic_word"),
        (a_checkpoint_holds_exact_totals, "logistic", r"checkpoint after step 1.*exact"),
        (a_checkpoint_holds_exact_totals_for_noisy_ones, "beta-bernoulli", r"checkpoint after step 1.*noisy/"),
        (a_checkpoint_says_how_much_was_clipped, "proportions", r"checkpoint after step 1.*run"),
        (a_file_beside_the_checkpoint, "lda", r"files.*debug.npz.* depends on the records"),
        (a_model_keeps_the_last_chunk, "lda", r"_documents.* depends on the records"),
        (a_regression_keeps_the_last_chunk, "binomial", r"last_.* depends on the records"),
        (a_class_keeps_the_last_chunk, "lda", r"(class|modules).*last.* depends on the records"),
        (a_module_keeps_the_last_chunk, "lda", r"modules.*_cache.* depends on the records"),
        (a_pickle_takes_the_last_chunk_along, "beta-bernoulli", "pickle depends on the records"),
        (a_posterior_carries_the_exact_total, "lda", r"last_posterior_.exact.* depends on the records"),
        (a_posterior_is_a_view_beside_the_exact_total, "lda", r"concentration.base depends on the records"),
        (a_posterior_refers_to_statistics, "lda", "_statistics.* depends on the records"),
        (a_report_counts_the_records, "beta-bernoulli", r"privacy_.releases.*declared.* depends on the records"),
        (a_saved_model_holds_exact_totals, "network", "saved model.*debug.* depends on the records"),
        (noisy_totals_are_the_exact_ones, "lda", "noisy_totals.* depends on the records"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_mutant_is_noticed(mutant, case, says, monkeypatch):
    law = reachable.everything_reachable_is_a_function_of_the_noisy_totals
    check_notices(lambda: law(BY_NAME[case]), mutant, monkeypatch, says)


@pytest.mark.parametrize(
    ("mutant", "case", "says"),
    [
        (a_checkpoint_holds_exact_totals, "lda", "a checkpoint holds {'noisy/exact topic_word'}"),
        (a_checkpoint_holds_exact_totals_for_noisy_ones, "lda", "not the noisy total of the step"),
        (a_file_beside_the_checkpoint, "lda", "debug.npz"),
        (a_model_keeps_the_last_chunk, "lda", "a model holds {'_documents'}"),
        (a_pickle_takes_the_last_chunk_along, "beta-bernoulli", "a pickle holds {'chunk'}"),
        (a_posterior_carries_the_exact_total, "lda", "a posterior holds {.*'exact'"),
        (a_saved_model_holds_exact_totals, "lda", "a saved model holds {'debug/topic_word'}"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_is_not_listed_is_noticed(mutant, case, says, monkeypatch):
    """Whether or not it depends on the records."""
    check_notices(lambda: reachable.what_can_be_reached_is_listed(BY_NAME[case]), mutant, monkeypatch, says)

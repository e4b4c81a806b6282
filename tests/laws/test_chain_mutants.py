"""Deliberately broken copies of hidden Markov models, of components, and of chunks of sequences. Each must be noticed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.data import test_sequence_sources as sources
from tests.laws import checks, reach
from tests.laws.cases import BY_NAME
from tests.mutants import check_notices, noticed, of_laws
from vips import CategoricalHMM, GaussianHMM, PoissonHMM
from vips.core.execution import partitions
from vips.core.sums import Joint
from vips.core.sums.classes import ClassStatistics
from vips.core.sums.gaussian_runs import GaussianSums
from vips.data import OpenPartition, Sequences
from vips.models.components.counts import Counts
from vips.models.components.numbers import Numbers
from vips.models.markov import gaussian, statistics


def norm_without(name):
    def mutant(patch):
        original = Joint.norms

        def norms(self, blocks):
            return original(self, dict(blocks) | {name: replace(blocks[name], scale=1e9)})

        patch.setattr(Joint, "norms", norms)

    mutant.__name__ = f"norm_without_{name}"
    return mutant


def norm_of_a_step(patch):
    """A sequence costs what its average step does."""
    original = CategoricalHMM.expected_statistics

    def expected_statistics(self, records, posterior):
        expectations, n_steps = original(self, records, posterior), np.maximum(records.lengths, 1)
        expectations.norms = lambda blocks: type(expectations).norms(expectations, blocks) / n_steps
        return expectations

    patch.setattr(CategoricalHMM, "expected_statistics", expected_statistics)


def states_go_on_in_the_next_sequence(patch):
    """The states of a step are those that it has if all sequences are one."""
    original = CategoricalHMM.inferred

    def inferred(self, records, posterior):
        whole = Sequences(records.values, np.array([0, len(records.values)]))
        return original(self, whole, posterior)[0], *original(self, records, posterior)[1:]

    patch.setattr(CategoricalHMM, "inferred", inferred)


def shares_in_proportion_to_the_longest(patch):
    original = CategoricalHMM.inferred

    def inferred(self, records, posterior):
        shares, *others = original(self, records, posterior)
        return shares / max(records.lengths.max(initial=1), 1), *others

    patch.setattr(CategoricalHMM, "inferred", inferred)


def codes_are_checked(patch):
    def valid_records(self, records):
        if not np.isin(records.values, range(self.n_symbols)).all():
            raise ValueError("a symbol is no code")
        return np.ones(len(records), bool)

    patch.setattr(CategoricalHMM, "valid_records", valid_records)


def lengths_are_read(patch):
    """The longest sequence says how much a sequence may cost."""
    original = CategoricalHMM.records_of

    def data(self, X, y):
        source = original(self, X, y)
        self.longest_ = int(source.arrays[0].lengths.max(initial=0))
        return source

    patch.setattr(CategoricalHMM, "records_of", data)


def chunks_have_a_scale(patch):
    """Steps are multiplied by a number that depends on how many sequences there are."""
    original = GaussianHMM._densities

    def densities(self, records, posterior):
        X, *others = original(self, records, posterior)
        return X * (1.0 + 1e-9 * len(records)), *others

    patch.setattr(GaussianHMM, "_densities", densities)


def missing_steps_raise(patch):
    """They raise."""

    def densities(self, records, posterior):
        if not np.isfinite(records.values).all():
            raise ValueError("a step is not finite")
        return original(self, records, posterior)

    original = GaussianHMM._densities
    patch.setattr(GaussianHMM, "_densities", densities)


def steps_weigh_alike(patch):
    """A step's influence depends on the longest step of its chunk."""

    def sums(X, *others):
        return GaussianSums(X, *others[:-1], others[-1] / (1.0 + np.fmax.reduce(np.abs(X), axis=None, initial=0.0)))

    patch.setattr(gaussian, "GaussianSums", sums)


def norms_of_classes_without(name):
    def mutant(patch):
        original = ClassStatistics.norms
        patch.setattr(
            ClassStatistics,
            "norms",
            lambda self, blocks: original(self, dict(blocks) | {name: replace(blocks[name], scale=1e9)}),
        )

    mutant.__name__ = f"norms_of_classes_without_{name}"
    return mutant


def shares_are_taken_for_sure(patch):
    """The norm of a row is that of its statistics, over the number of components."""

    def norms(self, blocks):
        return ClassStatistics.norms.original(self, blocks) / self.shares.shape[1]

    norms.original = ClassStatistics.norms
    patch.setattr(ClassStatistics, "norms", norms)


def numbers_are_centred_by_chunks(patch):
    """Coordinates depend on the other records."""
    original = Numbers.statistics
    patch.setattr(Numbers, "statistics", lambda self, cells: original(self, cells - 1e-3 * np.nanmean(cells, axis=0)))


def counts_are_cut_to_the_largest(patch):
    """To the largest of the chunk, in place of the public one."""
    original = Counts.cells
    patch.setattr(
        Counts,
        "cells",
        lambda self, values: np.minimum(original(self, values), np.fmax.reduce(np.ravel(values), initial=2.0) - 1.0),
    )


def pairs_of_columns_count_once(patch):
    """The norm of pairs is that of one pair of columns."""
    original = statistics.SumsOfSymbols

    class Once(original):
        def norms(self, blocks):
            return original.norms(self, blocks) / 3.0

    patch.setattr(statistics, "SumsOfSymbols", Once)


def restarts_are_seeded_by_records(patch):
    original = PoissonHMM.records_of

    def data(self, X, y):
        source = original(self, X, y)
        self.seed_ = int(np.nan_to_num(source.arrays[0].values, nan=0.0, posinf=0.0, neginf=0.0).sum() % 1000)
        return source

    patch.setattr(PoissonHMM, "records_of", data)


MUTANTS = [
    (norm_without("linear"), "norms_are_joint_and_never_too_small", "poisson chain", "a norm is smaller"),
    (norm_without("count"), "neighbours_stay_within_the_sensitivity", "poisson chain", "moved the sum by more than C"),
    (counts_are_cut_to_the_largest, "records_do_not_see_each_other", "poisson chain", "another one in company"),
    (
        restarts_are_seeded_by_records,
        "everything_else_is_public",
        "poisson chain",
        "something besides the noisy totals",
    ),
    (
        norm_without("linear"),
        "neighbours_stay_within_the_sensitivity",
        "chain of columns",
        "moved the sum by more than C",
    ),
    (norms_of_classes_without("count"), "neighbours_stay_within_the_sensitivity", "mixed classes", "by more than C"),
    (norms_of_classes_without("cells"), "neighbours_stay_within_the_sensitivity", "mixed classes", "by more than C"),
    (shares_are_taken_for_sure, "norms_are_joint_and_never_too_small", "mixed classes", "a norm is smaller"),
    (numbers_are_centred_by_chunks, "records_do_not_see_each_other", "mixed classes", "another one in company"),
    (norm_without("second"), "norms_are_joint_and_never_too_small", "gaussian chain", "a norm is smaller"),
    (chunks_have_a_scale, "records_do_not_see_each_other", "gaussian chain", "another one in company"),
    (
        missing_steps_raise,
        "defective_records_change_nothing_else",
        "gaussian chain",
        "an error that depends on a record",
    ),
    (steps_weigh_alike, "records_do_not_see_each_other", "gaussian chain", "another one in company"),
    (norm_without("start"), "norms_are_joint_and_never_too_small", "chain", "a norm is smaller"),
    (norm_without("moves"), "neighbours_stay_within_the_sensitivity", "chain", "moved the sum by more than C"),
    (norm_without("emissions"), "neighbours_stay_within_the_sensitivity", "chain", "moved the sum by more than C"),
    (norm_of_a_step, "defective_records_change_nothing_else", "chain", "moved the sum by"),
    (states_go_on_in_the_next_sequence, "records_do_not_see_each_other", "chain", "another one in company"),
    (shares_in_proportion_to_the_longest, "records_do_not_see_each_other", "chain", "another one in company"),
    (codes_are_checked, "defective_records_change_nothing_else", "chain", "an error that depends on a record"),
    (lengths_are_read, "everything_else_is_public", "chain", "something besides the noisy totals"),
]


test_mutant_is_noticed = of_laws(checks, MUTANTS)


def test_a_norm_of_pairs_that_is_too_small_is_noticed(monkeypatch):
    case = BY_NAME["poisson chain"]
    check_notices(lambda: reach.norms_hold_in_every_phase(case), pairs_of_columns_count_once, monkeypatch, "is smaller")


# -- lengths, and chunks -----------------------------------------------------------------------------------------------------


def all_steps_count(patch):
    patch.setattr(Sequences, "first", lambda self, n_steps: self)


def all_steps_are_read(patch):
    original = OpenPartition.first_steps

    def first_steps(self, n_steps):
        sequences = self.X[:]
        assert len(sequences.values) >= 0
        return original(replace(self, X=sequences), n_steps)

    patch.setattr(OpenPartition, "first_steps", first_steps)


def persons_are_read_whole(patch):
    original = OpenPartition._select_runs

    def select_runs(self, records):
        runs = original(self, records)
        assert len(runs.rows.values) >= 0
        return runs

    patch.setattr(OpenPartition, "_select_runs", select_runs)


def pieces_are_counted_in_sequences(patch):
    patch.setattr(partitions, "step_counts", lambda rows: None)


test_lengths_and_memory_are_watched = noticed(
    (all_steps_count, lambda folder: reach.what_every_phase_sums(BY_NAME["chain"]), "beyond its largest length"),
    (all_steps_are_read, sources.test_memory_is_bounded_by_a_chunk_of_steps),
    (persons_are_read_whole, sources.test_memory_is_bounded_by_a_chunk_of_steps),
    (pieces_are_counted_in_sequences, sources.test_memory_is_bounded_by_a_chunk_of_steps),
)

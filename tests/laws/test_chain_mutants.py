"""Deliberately broken copies of hidden Markov models, and of chunks of sequences. Each must be noticed by its check."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.data import test_sequence_sources as sources
from tests.laws import checks
from tests.laws.cases import CASES
from tests.models.markov import test_categorical
from tests.mutants import check_notices, of_laws
from vips import CategoricalHMM, GaussianHMM
from vips.data import OpenPartition, Sequences
from vips.execution import partitions
from vips.models.markov import gaussian_contract
from vips.models.markov.gaussian_statistics import GaussianSums
from vips.models.markov.statistics import SequenceStatistics

BY_NAME = {case.name: case for case in CASES}


def norm_without(name):
    def mutant(patch):
        original = SequenceStatistics.norms

        def norms(self, blocks):
            return original(self, dict(blocks) | {name: replace(blocks[name], scale=1e9)})

        patch.setattr(SequenceStatistics, "norms", norms)

    mutant.__name__ = f"norm_without_{name}"
    return mutant


def norm_of_a_step(patch):
    """A sequence costs what its average step does."""
    original = CategoricalHMM.expected_statistics

    def expected_statistics(self, records, posterior):
        found, n_steps = original(self, records, posterior), np.maximum(records.lengths, 1)
        found.norms = lambda blocks: type(found).norms(found, blocks) / n_steps
        return found

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
        shares, *rest = original(self, records, posterior)
        return shares / max(records.lengths.max(initial=1), 1), *rest

    patch.setattr(CategoricalHMM, "inferred", inferred)


def weight_zero_is_little(patch):
    original = SequenceStatistics.weighted_sum
    patch.setattr(SequenceStatistics, "weighted_sum", lambda self, weights: original(self, np.maximum(weights, 1e-3)))


def rounded_after_the_sum(patch):
    def rounded_sum(self, weights, blocks, lattice):
        return {name: lattice.rounded(value, blocks[name]) for name, value in self.weighted_sum(weights).items()}

    patch.setattr(SequenceStatistics, "rounded_sum", rounded_sum)


def codes_are_checked(patch):
    def valid_records(self, records):
        if not np.isin(records.values, range(self.n_symbols)).all():
            raise ValueError("a symbol is no code")
        return np.ones(len(records), bool)

    patch.setattr(CategoricalHMM, "valid_records", valid_records)


def lengths_are_read(patch):
    """The longest sequence says how much a sequence may cost."""
    original = CategoricalHMM._data

    def data(self, X, y):
        source = original(self, X, y)
        self.longest_ = int(source.arrays[0].lengths.max(initial=0))
        return source

    patch.setattr(CategoricalHMM, "_data", data)


def chunks_have_a_scale(patch):
    """Steps are multiplied by a number that depends on how many sequences there are."""
    original = GaussianHMM._densities

    def densities(self, records, posterior):
        X, is_missing, squares, likely, log_scale = original(self, records, posterior)
        return X * (1.0 + 1e-9 * len(records)), is_missing, squares, likely, log_scale

    patch.setattr(GaussianHMM, "_densities", densities)


def norms_are_a_little_small(patch):
    original = GaussianSums.squares
    patch.setattr(GaussianSums, "squares", lambda self, blocks: 0.8 * original(self, blocks))


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
    original = gaussian_contract.influence_of_steps

    def influence(*arguments):
        found = original(*arguments)
        return np.minimum(found, found.min(initial=1.0) + 0.5)

    patch.setattr(gaussian_contract, "influence_of_steps", influence)


MUTANTS = [
    (norm_without("second"), "norms_are_joint_and_never_too_small", "gaussian chain", "a norm is smaller"),
    (norms_are_a_little_small, "norms_are_joint_and_never_too_small", "gaussian chain", "a norm is smaller"),
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
    (weight_zero_is_little, "records_do_not_see_each_other", "chain", "another one in company"),
    (rounded_after_the_sum, "hardened_sums_are_exact", "chain", "a sum depends on the chunks"),
    (codes_are_checked, "defective_records_change_nothing_else", "chain", "an error that depends on a record"),
    (lengths_are_read, "everything_else_is_public", "chain", "something besides the noisy totals"),
]


@of_laws(MUTANTS)
def test_mutant_is_noticed(mutant, law, case, says, monkeypatch):
    check_notices(lambda: getattr(checks, law)(BY_NAME[case]), mutant, monkeypatch, says)


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


@pytest.mark.parametrize(
    ("mutant", "check"),
    [
        (all_steps_count, lambda folder: test_categorical.test_a_million_steps_count_as_the_first_ones()),
        (all_steps_are_read, sources.test_memory_is_bounded_by_a_chunk_of_steps),
        (persons_are_read_whole, sources.test_memory_is_bounded_by_a_chunk_of_steps),
        (pieces_are_counted_in_sequences, sources.test_memory_is_bounded_by_a_chunk_of_steps),
    ],
)
def test_lengths_and_memory_are_watched(mutant, check, tmp_path, monkeypatch):
    check_notices(lambda: check(tmp_path), mutant, monkeypatch)

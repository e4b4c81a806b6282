"""Deliberately broken copies that a small table in the first step does not show."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.laws import checks, reach
from tests.laws.cases import BY_NAME
from tests.mutants import check_notices, of_laws
from vips.core import engine
from vips.core.execution import partitions
from vips.core.sums import kernels
from vips.core.sums.regressions import RegressionSums
from vips.data import Sequences
from vips.models.markov import categorical
from vips.models.topics.statistics import DocumentStatistics


def scores_of_a_person_in_pieces_have_one_weight(patch):
    """w in place of w²."""
    original = RegressionSums.carry

    def carry(self, carried, weights, is_last):
        return original(self, carried, np.sqrt(weights), is_last)

    patch.setattr(RegressionSums, "carry", carry)


def squares_of_a_person_are_left_out(patch):
    """A person in pieces is longer than scores and information are."""

    def piece_norm(self, norms, blocks):
        return float(np.linalg.norm([form.lengths(blocks).max(axis=0) @ (norms > 0.0) for form in self.forms[:-1]]))

    patch.setattr(RegressionSums, "piece_norm", piece_norm)


def squares_of_a_person_are_those_of_pieces(patch):
    patch.setattr(
        RegressionSums,
        "piece_norm",
        lambda self, norms, blocks: float(self.run_norms(norms, blocks, np.array([0, len(norms)]))[0]),
    )


def norms_forget_answers_beyond_the_twelfth(patch):
    original = kernels.fill_answer_norms
    patch.setattr(
        kernels, "fill_answer_norms", lambda places, *args: original(np.ascontiguousarray(places[:, :12]), *args)
    )


def norms_of_contexts_without(name):
    def mutant(patch):
        original = categorical.of_neighbours

        def of_neighbours(*arguments):
            moves, emissions = original(*arguments)
            norms = moves.norms
            moves.norms = lambda blocks: norms(dict(blocks) | {name: replace(blocks[name], scale=1e9)})
            return moves, emissions

        patch.setattr(categorical, "of_neighbours", of_neighbours)

    mutant.__name__ = f"norms_of_contexts_without_{name}"
    return mutant


def norms_of_many_topics_are_of_the_asked_number(patch):
    original = DocumentStatistics.norms
    patch.setattr(
        DocumentStatistics,
        "norms",
        lambda self, blocks: original(self, blocks) * (0.7 if "many_topics" in blocks else 1.0),
    )


def a_persons_norm_is_exact_where_a_chunk_holds_it(patch):
    original = partitions.weights_of_rows
    patch.setattr(partitions, "weights_of_rows", lambda *given: original(*given[:-1], None))


def check_that_chunks_change_no_person(case):
    """A large chunk holds all sequences of the person, and a small one does not."""
    model, plan, _, posterior = checks.prepared(case, 4)
    width, rng = case.make_records(4, np.random.default_rng(0)).values.shape[1], np.random.default_rng(0)
    records, phase = Sequences.from_lengths(rng.normal(size=(2000, width)), np.full(100, 20)), checks.last_phase(model)
    sums = []
    for model.chunk_size in (10_000, 300):
        data = reach._by_persons(model, records, np.zeros(100, int))
        sums.append(engine.clipped_sum(model, phase, data, posterior, plan, plan.randomness(0), 1))
    for name, block in phase.blocks.items():
        atol = 1e-6 * plan.clip_norm * block.scale
        np.testing.assert_allclose(sums[1][name], sums[0][name], rtol=1e-6, atol=atol, err_msg="a person in pieces")


@pytest.mark.parametrize("case", ["switching", "factorial chain", "gaussian chain"])
def test_chunks_change_no_person_of_many_sequences(case):
    check_that_chunks_change_no_person(BY_NAME[case])


def test_a_person_whose_steps_are_not_counted_is_noticed(monkeypatch):
    check = lambda: check_that_chunks_change_no_person(BY_NAME["factorial chain"])  # noqa: E731
    check_notices(check, a_persons_norm_is_exact_where_a_chunk_holds_it, monkeypatch, "a person in pieces")


MUTANTS = [
    (
        scores_of_a_person_in_pieces_have_one_weight,
        "a_person_moves_the_sum_by_at_most_one_clip",
        "logistic",
        "moves the sum",
    ),
    (
        squares_of_a_person_are_left_out,
        "a_person_moves_the_sum_by_at_most_one_clip",
        "logistic, searched",
        "moves the sum",
    ),
    (norms_forget_answers_beyond_the_twelfth, "norms_hold_in_every_phase", "wide latent classes", "a norm is smaller"),
    (norms_of_many_topics_are_of_the_asked_number, "norms_hold_in_every_phase", "lda", "a norm is smaller"),
    (
        norms_of_many_topics_are_of_the_asked_number,
        "a_record_moves_the_sum_by_at_most_one_clip",
        "lda",
        "moved the sum",
    ),
    (norms_of_contexts_without("moves"), "norms_hold_in_every_phase", "chain", "a norm is smaller"),
    (norms_of_contexts_without("start"), "norms_hold_in_every_phase", "chain", "a norm is smaller"),
]


test_mutant_is_noticed = of_laws(reach, MUTANTS)

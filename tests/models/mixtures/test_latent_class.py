"""Latent classes against the model written down anew, and against brute force."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp

from tests.models.mixtures.tables import LEVELS, answers, by_column, one_hot, textbook_step
from tests.steps import phase_of
from vips import LatentClassAnalysis, PrivacyPlan
from vips.core.sums import Block, DenseStatistics, classes
from vips.core.sums import kernels as sums_kernels
from vips.core.sums.classes import ClassStatistics
from vips.models.components import kernels
from vips.privacy import Lattice

CODES = answers(300)


def steps(n):
    return PrivacyPlan.non_private(n_steps=n)


def fitted(n_steps, codes=CODES, **settings):
    settings = {"n_components": 3, "categories": LEVELS, "random_state": 4} | settings
    return LatentClassAnalysis(privacy=steps(n_steps), **settings).fit(codes)


@pytest.mark.parametrize("inference", ["vb", "em"])
def test_without_noise_it_is_textbook_variational_bayes_and_em(inference):
    priors = (0.7, 0.4) if inference == "vb" else (0.0, 0.0)
    settings = {"class_prior": 0.7, "answer_prior": 0.4, "inference": inference}
    start = fitted(2, **settings).last_posterior_
    weights, table = start.weights.concentration, start.columns["answers"].concentration
    for n_steps in range(3, 13):
        weights, table, scores = textbook_step(one_hot(CODES), weights, table, priors, inference == "vb")
        posterior = fitted(n_steps, **settings).last_posterior_
        np.testing.assert_allclose(posterior.weights.concentration, weights, rtol=1e-9)
        np.testing.assert_allclose(posterior.columns["answers"].concentration, table, rtol=1e-9, atol=1e-9)
    before = fitted(11, **settings)
    divergence = kl(before.last_posterior_, priors) if inference == "vb" else 0.0
    assert before.bound(CODES, before.last_posterior_) == pytest.approx(scores.sum() - divergence, rel=1e-9)


def kl(posterior, priors):
    """KL of the Dirichlet posteriors from symmetric priors, by the formula."""
    from scipy.special import digamma

    total = 0.0
    rows = [(posterior.weights.concentration, priors[0])]
    rows += [(row, priors[1]) for column in by_column(posterior.columns["answers"].concentration) for row in column]
    for a, prior in rows:
        total += gammaln(a.sum()) - gammaln(a).sum() - gammaln(prior * len(a)) + len(a) * gammaln(prior)
        total += ((a - prior) * (digamma(a) - digamma(a.sum()))).sum()
    return total


def test_the_first_step_counts_answers_and_classes_start_around_them():
    one = fitted(1, n_components=1, answer_prior=0.5)
    np.testing.assert_allclose(
        one.last_posterior_.columns["answers"].concentration[0], 0.5 + one_hot(CODES).sum(axis=0)
    )
    assert one.last_posterior_.weights.concentration[0] == 1.0 + len(CODES)
    three = fitted(1).last_posterior_
    np.testing.assert_allclose(three.weights.mean, 1.0 / 3.0)
    ratios = (
        (three.columns["answers"].concentration - 1.0)
        / (one.last_posterior_.columns["answers"].concentration - 0.5)
        * 3.0
    )
    assert 0.3 < np.log(ratios).std() < 0.8
    assert np.abs(np.log(ratios).mean()) < 0.4


def test_missing_answers_are_summed_out():
    model, record = fitted(20), np.array([[1, -1, 2, -1]])
    completions = np.array([[1, a, 2, b] for a, b in product(range(3), range(2))])
    expected = logsumexp(model.score_samples(completions))
    assert model.score_samples(record)[0] == pytest.approx(expected, rel=1e-12)
    for hole in (np.nan, -1.0, 7.0, 0.5, np.inf):
        same = np.array([[1.0, hole, 2.0, hole]])
        if np.isinf(hole):
            same[0, 3] = np.nan
        assert model.score_samples(same)[0] == model.score_samples(record)[0]
    np.testing.assert_allclose(model.predict_proba(np.full((1, 4), -1)), model.weights_[None])


def test_scores_are_probabilities_of_all_records():
    every = np.array(list(product(*map(range, LEVELS))))
    assert np.exp(fitted(20).score_samples(every)).sum() == pytest.approx(1.0, rel=1e-12)


def test_classes_are_recovered_with_and_without_noise():
    codes = answers(8_000, seed=1)
    best = fitted(60, codes).score(codes)
    alone = fitted(1, codes, n_components=1).score(codes)
    plan = PrivacyPlan.from_epsilon(epsilon=2.0, delta=1e-6, sampling_rate=1.0, n_steps=30, reproducible_noise=True)
    private = LatentClassAnalysis(3, categories=LEVELS, privacy=plan, random_state=0).fit(codes).score(codes)
    assert best > alone + 0.2
    assert private > alone + 0.7 * (best - alone)


# -- statistics -------------------------------------------------------------------------------------------------


def both_statistics(codes, n_numbers=0):
    """Statistics of records, never formed, and formed one by one; beside numbers, if there are any."""
    model = fitted(6)
    sums = model.expected_statistics(codes, model.last_posterior_)
    rows = np.random.default_rng(0).normal(size=(len(codes), n_numbers))
    if n_numbers:
        sums = ClassStatistics(sums.shares, rows, model._columns().places(codes), sum(LEVELS))
    formed = sums.shares[:, :, None] * np.hstack([rows, one_hot(codes)])[:, None, :]
    return model, sums, DenseStatistics({"count": sums.shares, "cells": formed})


def check_statistics(n_numbers=0):
    codes = answers(50, seed=3, missing=0.3)
    codes[7] = -1  # a record without an answer
    model, sums, formed = both_statistics(codes, n_numbers)
    blocks = {"count": Block((3,), scale=3.0), "cells": Block((3, n_numbers + sum(LEVELS)), scale=2.0)}
    constants, _, table = model.last_posterior_.tables(model._columns())
    joint = constants + one_hot(codes) @ table
    expected = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
    assert np.allclose(sums.shares, expected, rtol=1e-10, atol=1e-14), "responsibilities differ"
    whole = formed
    if not n_numbers:  # missing answers count
        whole = DenseStatistics({"count": sums.shares, "cells": np.repeat(sums.shares, len(LEVELS), axis=1)})
        blocks_of_whole = {"count": blocks["count"], "cells": Block((3 * len(LEVELS),), scale=2.0)}
    assert np.allclose(sums.norms(blocks), whole.norms(blocks if n_numbers else blocks_of_whole), rtol=1e-8), (
        "norms differ"
    )
    times = np.random.default_rng(0).random(50)
    times[3] = 0.0
    lattice = Lattice(1e-3, 1024)
    for one, other in (
        (sums.weighted_sum(times), formed.weighted_sum(times)),
        (sums.rounded_sum(times, blocks, lattice), formed.rounded_sum(times, blocks, lattice)),
    ):
        for name in blocks:
            assert np.allclose(one[name], other[name], rtol=1e-10, atol=1e-10), f"sums of {name} differ"


@pytest.mark.parametrize("n_numbers", [0, 3])
def test_statistics_are_those_of_records_formed_one_by_one(n_numbers):
    check_statistics(n_numbers)


def test_products_of_means_are_a_symmetric_block():
    means, blocks = np.random.default_rng(0).normal(size=(30, 4)), {"moments": Block((4, 4), symmetric=True, scale=2.0)}
    products = ClassStatistics(means, means, np.empty((30, 0), np.int32), 0, (None, "moments"))
    formed = DenseStatistics({"moments": means[:, :, None] * means[:, None, :]})
    weights, lattice = np.linspace(0.0, 1.0, 30), Lattice(1e-3, 1024)
    np.testing.assert_allclose(products.norms(blocks), formed.norms(blocks), rtol=1e-8)
    np.testing.assert_allclose(products.weighted_sum(weights)["moments"], formed.weighted_sum(weights)["moments"])
    rounded = (sums.rounded_sum(weights, blocks, lattice)["moments"] for sums in (products, formed))
    np.testing.assert_array_equal(*rounded)


def norm_without_count(patch):
    original = ClassStatistics.norms

    def norms(self, blocks):
        of_count, of_cells = self._names
        answered = (self._places >= 0).sum(axis=1) / blocks[of_cells].scale ** 2
        whole = answered + 1.0 / blocks[of_count].scale ** 2
        return original(self, blocks) * np.sqrt(answered / whole)

    patch.setattr(ClassStatistics, "norms", norms)


def missing_answers_counted(patch):
    original = sums_kernels.add_answers
    patch.setattr(sums_kernels, "add_answers", lambda places, *args: original(np.abs(places), *args))


def e_step_reads_the_record_before(patch):
    original = kernels.responsibilities
    patch.setattr(kernels, "responsibilities", lambda places, *args: original(np.roll(places, 1, axis=0), *args))


def norm_without_numbers(patch):
    patch.setattr(classes, "row_dots", lambda rows, others: np.zeros(len(rows)))


@pytest.mark.parametrize(
    ("mutant", "says"),
    [
        (norm_without_count, "norms differ"),
        (missing_answers_counted, "sums of cells differ"),
        (norm_without_numbers, "norms differ"),
        (e_step_reads_the_record_before, "responsibilities differ"),
    ],
)
def test_mutants_are_noticed(mutant, says, monkeypatch):
    mutant(monkeypatch)
    with pytest.raises(AssertionError, match=says):
        check_statistics(n_numbers=2 if mutant is norm_without_numbers else 0)


def test_no_record_is_longer_than_the_largest_norm():
    model, sums, _ = both_statistics(answers(200, seed=5))
    assert sums.norms(phase_of(model, "classes").blocks).max() <= model.max_record_norm() * (1.0 + 1e-8)
    assert model.default_clip() == pytest.approx(0.7 * np.sqrt(5.0))

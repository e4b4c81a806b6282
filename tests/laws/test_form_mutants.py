"""Deliberately broken copies of the forms of sums. A law of a model that sums a form must notice every way to break it."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from tests.laws import checks
from tests.laws.cases import BY_NAME
from tests.mutants import check_notices, sum_then_rounded
from vips.core.phases import FitPhase
from vips.core.sums import BySquaredWeights, DenseStatistics, Form, Joint, Quadratic, RecordStatistics
from vips.core.sums.classes import ClassStatistics
from vips.core.sums.gaussian_runs import GaussianSums
from vips.core.sums.gaussians import MixtureStatistics
from vips.core.sums.networks import Derivatives, UnitPairs
from vips.core.sums.outer import Outer, RowSum, WordShares
from vips.core.sums.regressions import SquaresOfShares
from vips.core.sums.runs import ComponentSums, SumsOfSymbols

SUMMED_BY = {
    ClassStatistics: "latent classes",
    ComponentSums: "poisson chain",
    DenseStatistics: "beta-bernoulli",
    GaussianSums: "gaussian chain",
    Joint: "chain",
    MixtureStatistics: "mixture",
    Derivatives: "network",
    RowSum: "logistic diagonal",
    Outer: "logistic diagonal",
    Quadratic: "linear",
    SquaresOfShares: "logistic, searched",
    SumsOfSymbols: "chain",
    UnitPairs: "network full",
    WordShares: "lda",
}
ALONE, EXACT = checks.records_do_not_see_each_other, checks.hardened_sums_are_exact
NORMS = checks.norms_are_joint_and_never_too_small


def a_norm_is_a_little_small(original, self, *arguments):
    return 0.9 * original(self, *arguments)


def a_norm_depends_on_the_place(original, self, *arguments):
    norms = original(self, *arguments)
    return norms * (1.0 + 1e-3 * np.arange(norms.shape[-1]))


def weight_0_is_little(original, self, weights):
    return original(self, np.maximum(weights, 1e-3))


def the_last_record_is_left_out(original, self, weights):
    return original(self, np.append(weights[:-1], 0.0))


def rounded_after_the_sum(original, *arguments):
    return sum_then_rounded(*arguments)


# way, method, law, what the law says
WAYS = [
    (a_norm_is_a_little_small, "norms", NORMS, "a norm is smaller"),
    (a_norm_depends_on_the_place, "norms", ALONE, "a norm depends on the others|another one in company"),
    (weight_0_is_little, "weighted_sum", ALONE, "another one in company"),
    (the_last_record_is_left_out, "weighted_sum", ALONE, "another one in company"),
    (rounded_after_the_sum, "rounded_sum", EXACT, "a sum depends on the chunks|the rounded sum is not the sum"),
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way[0].__name__)
@pytest.mark.parametrize("form", SUMMED_BY, ids=lambda form: form.__name__)
def test_mutant_is_noticed(form, way, monkeypatch):
    mutant, method, law, says = way
    if method == "norms" and "lengths" in vars(form):  # for each label, of which norms are the largest
        method = "lengths"
    original = getattr(form, method)

    def broken(patch):
        patch.setattr(form, method, lambda *arguments: mutant(original, *arguments))

    check_notices(lambda: law(BY_NAME[SUMMED_BY[form]]), broken, monkeypatch, says)


def test_every_form_has_mutants():
    def forms(kind):
        return {kind}.union(*map(forms, kind.__subclasses__()))

    stated = {
        form
        for form in forms(RecordStatistics)
        if form.__module__.startswith("vips.core.sums.") and {"norms", "lengths"} & set(vars(form))
    }
    # two state none, the last asks the form that it holds: tests/models/test_sample_weights.py
    assert stated ^ set(SUMMED_BY) == {RecordStatistics, Form, BySquaredWeights}


# -- factors, which families make -------------------------------------------------------------------------------


def rows_of_others(original, phase, model, records, posterior):
    return original(phase, model, records[np.roll(np.arange(records.shape[0]), 1)], posterior)


def statistics_of_the_chunk_before(original):
    """A chunk of as many records that was seen before."""
    seen = {}

    def mutant(phase, model, records, posterior):
        return seen.setdefault(records.shape[0], original(phase, model, records, posterior))

    return mutant


def posterior_of_the_start(original, phase, model, records, posterior):
    """Where there are several records."""
    first = model.start(np.random.default_rng(1))[1]
    return original(phase, model, records, posterior if records.shape[0] == 1 else first)


FAMILIES = {
    "topics": "lda", "regression": "logistic, searched", "linear": "linear, searched", "mixed": "mixed effects",
    "belief_networks": "network", "gaussian_mixtures": "mixture", "markov": "chain", "vectors": "gaussian chain",
    "dynamics": "switching", "mixtures": "mixed classes", "proportions": "proportions", "spatial": "spatial counts",
    "second_moments": "principal components",
}  # fmt: skip
SEE_NO_POSTERIOR = "proportions", "spatial", "second_moments"


@pytest.mark.parametrize("mutant", [rows_of_others, statistics_of_the_chunk_before, posterior_of_the_start])
@pytest.mark.parametrize("family", FAMILIES)
def test_factors_of_other_records_are_noticed(family, mutant, monkeypatch):
    if mutant is posterior_of_the_start and family in SEE_NO_POSTERIOR:
        return
    original = FitPhase.statistics_of
    mutated = mutant(original) if mutant is statistics_of_the_chunk_before else partial(mutant, original)

    def broken(patch):
        patch.setattr(FitPhase, "statistics_of", lambda *arguments: mutated(*arguments))

    check_notices(lambda: ALONE(BY_NAME[FAMILIES[family]]), broken, monkeypatch, "in company|depends on the others")

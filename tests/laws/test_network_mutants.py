"""Deliberately broken copies of sigmoid belief networks. Each must be noticed by the law named beside it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.laws import checks
from tests.mutants import check_notices, of_laws
from vips import PrivacyPlan, SigmoidBeliefNetwork
from vips.core.exact.rowwise import row_norms, strict_product
from vips.core.sums import Block, networks, outer
from vips.core.sums.networks import Derivatives, NetworkStatistics, UnitPairs
from vips.core.sums.outer import Outer, Rows
from vips.models.belief_networks import sigmoid as sbn_model

MANY_SIZES = 1.0, 1.0 + 1e-6


def uncertainty_not_in_the_norm(patch):
    """The norm of r z̃ᵀ alone, without the term that uncertain hidden units add."""

    def mutant(self, blocks):
        _, residual, centred, _ = self._arrays
        return row_norms(residual) * row_norms(centred) / blocks["weights"].scale

    patch.setattr(Derivatives, "norms", mutant)


def cross_term_with_the_wrong_sign(patch):
    original = Derivatives.norms

    def mutant(self, blocks):
        weights, self._weights = self._weights, -self._weights
        try:
            return original(self, blocks)
        finally:
            self._weights = weights

    patch.setattr(Derivatives, "norms", mutant)


def precision_not_in_the_norm(patch):
    """The second of two statistics is released without a cost in the norm."""
    patch.setattr(Outer, "lengths", lambda self, blocks: np.zeros_like(self._left.norms))


def variances_not_in_the_outer_norm(patch):
    patch.setattr(
        UnitPairs,
        "norms",
        lambda self, blocks: self._omega.norms[0] * np.square(row_norms(self._z)) / blocks["outer"].scale,
    )


def hidden_units_kept_between_steps(patch):
    """As in the published code: a record starts where the record at its place in the last batch ended."""
    original, kept = sbn_model.infer, {}

    def mutant(y, posterior, max_iter, observed=None, alone=False):
        units = original(y, posterior, max_iter, observed, alone)
        last = kept.get("mean", units.mean)
        kept["mean"] = units.mean.copy()
        n = min(len(last), len(units.mean))
        units.mean[:n] = 0.5 * (units.mean[:n] + last[:n])
        return units

    patch.setattr(sbn_model, "infer", mutant)


def centred_at_the_chunk(patch):
    original = NetworkStatistics.__init__

    def mutant(self, omega, residual, mean, *others):
        original(self, omega, residual, mean - mean.mean(axis=0), *others)

    patch.setattr(NetworkStatistics, "__init__", mutant)


def rows_that_are_not_binary_raise(patch):
    original = SigmoidBeliefNetwork.valid_records

    def mutant(self, records):
        valid = original(self, records)
        if not valid.all():
            raise ValueError("X must be binary")
        return valid

    patch.setattr(SigmoidBeliefNetwork, "valid_records", mutant)


def rows_that_are_not_binary_kept(patch):
    """Kept, and multiplied by 0 instead of left out: either of the two safeguards alone would keep the sum right."""
    patch.setattr(SigmoidBeliefNetwork, "valid_records", lambda self, records: np.ones(records.shape[0], bool))
    for module in (networks, outer):
        patch.setattr(module, "present", lambda *given: given)


def number_of_records_read_from_the_data(patch):
    """N in the precision of b, as in the paper, instead of the noisy block."""
    seen = {}
    original, update = SigmoidBeliefNetwork.records_of, SigmoidBeliefNetwork.to_posterior

    def records_of(self, X, y):
        data = original(self, X, y)
        seen["count"] = data.n_records
        return data

    def to_posterior(self, average, noise_std, previous):
        if previous is not None and "count" in seen:
            average = dict(average) | {"count": np.array(float(seen["count"]))}
        return update(self, average, noise_std, previous)

    patch.setattr(SigmoidBeliefNetwork, "records_of", records_of)
    patch.setattr(SigmoidBeliefNetwork, "to_posterior", to_posterior)


def starting_bias_from_the_data(patch):
    """Visible biases start at the columns' log odds."""
    original, first, seen = SigmoidBeliefNetwork.records_of, SigmoidBeliefNetwork.initial, {}

    def records_of(self, X, y):
        seen["mean"] = np.asarray(X.mean(axis=0)).ravel() if X.shape[0] else 0.0
        return original(self, X, y)

    def initial(self, rng):
        return first(self, rng) | {"visible": np.zeros(self.n_features_in_) + seen.get("mean", 0.0)}

    patch.setattr(SigmoidBeliefNetwork, "records_of", records_of)
    patch.setattr(SigmoidBeliefNetwork, "initial", initial)


MUTANTS = [
    (uncertainty_not_in_the_norm, "norms_are_joint_and_never_too_small", "network", "a norm is smaller"),
    (cross_term_with_the_wrong_sign, "norms_are_joint_and_never_too_small", "network", "a norm is smaller"),
    (precision_not_in_the_norm, "norms_are_joint_and_never_too_small", "network", "a norm is smaller"),
    (precision_not_in_the_norm, "neighbours_stay_within_the_sensitivity", "network", "moved the sum by more than C"),
    (variances_not_in_the_outer_norm, "norms_are_joint_and_never_too_small", "network full", "a norm is smaller"),
    (hidden_units_kept_between_steps, "records_do_not_see_each_other", "network", "another one in company"),
    (centred_at_the_chunk, "records_do_not_see_each_other", "network", "another one in company"),
    (
        rows_that_are_not_binary_raise,
        "defective_records_change_nothing_else",
        "network",
        "an error that depends on a record",
    ),
    (rows_that_are_not_binary_kept, "defective_records_change_nothing_else", "network", "destroyed the sum"),
    (
        number_of_records_read_from_the_data,
        "everything_else_is_public",
        "network",
        "something besides the noisy totals",
    ),
    (starting_bias_from_the_data, "everything_else_is_public", "network", "something besides the noisy totals"),
]


test_mutant_is_noticed = of_laws(checks, MUTANTS)


def _rows_alone_are_exact():
    """Statistics under hardened noise are functions of a record to the last bit, wherever it lies in a chunk."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (40, 37)).astype(float)
    plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=1, noise="discrete")
    model = SigmoidBeliefNetwork(19, privacy=plan)
    model.n_features_in_ = 37
    average, first = model.start(rng)
    posterior = model.to_posterior(average | {"weights": 10.0 * first.weights.mean}, dict.fromkeys(average, 0.0), None)
    blocks, norms = model.blocks(), []
    for rows in (slice(None), slice(3, None), slice(7, 9)):
        norms.append(
            dict(zip(range(40)[rows], model.expected_statistics(X[rows], posterior).norms(blocks), strict=True))
        )
    assert all(norms[0][n] == part[n] for part in norms[1:] for n in part)


def test_hardened_norms_do_not_depend_on_the_chunk(monkeypatch):
    _rows_alone_are_exact()
    monkeypatch.setattr(networks, "strict_product", lambda a, b: strict_product(a, b) * MANY_SIZES[len(a) > 5])
    with pytest.raises(AssertionError):
        _rows_alone_are_exact()


def test_a_norm_is_never_too_small_where_its_terms_cancel(monkeypatch):
    """r z̃ is ω v W̄ to ten digits. NumPy's longer floats are the ruler."""
    rng = np.random.default_rng(0)
    omega, z, weights = rng.uniform(0.1, 0.3, (200, 1)), rng.uniform(0.6, 0.9, (200, 1)), np.array([[4.0]])
    hidden, spread = z - 0.5, omega * (z * (1.0 - z)) * weights
    residual = spread / hidden * (1.0 + 1e-10)
    form = Derivatives(*map(Rows, (omega, residual, hidden)), z, weights, strict_product)
    exact = np.abs(residual * hidden.astype(np.longdouble) - omega * (z * (1.0 - z)).astype(np.longdouble) * weights)

    def check():
        assert (form.norms({"weights": Block((1, 1))}) >= exact.ravel()).all(), "a norm is smaller"

    check()
    check_notices(check, lambda patch: patch.setattr(networks, "_CANCELLATION", 0.0), monkeypatch, "a norm is smaller")

"""Deliberately broken copies of the code. Each must be noticed by the law named beside it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from tests.laws import checks
from tests.laws.cases import BY_NAME
from tests.mutants import add, of_laws, sum_then_rounded
from vips import ConjugateExponentialModel, DenseStatistics, LatentDirichletAllocation, PrivacyPlan
from vips.core import accounting, engine
from vips.core import plan as plan_module
from vips.core.execution import partitions
from vips.core.mechanism import lattice, noise, sampling
from vips.models.topics import lda
from vips.models.topics import statistics as lda_statistics


def noise_halved(patch):
    original = noise.gaussian_noise
    patch.setattr(noise, "gaussian_noise", lambda s, y, std, rng: original(s, y, std / 2.0, rng))


def noise_over_root_two(patch):
    original = noise.gaussian_noise
    patch.setattr(noise, "gaussian_noise", lambda s, y, std, rng: original(s, y, std / np.sqrt(2.0), rng))


def symmetric_noise_not_isometric(patch):
    original = noise.gaussian_noise

    def mutant(shape, symmetric, std, rng):
        drawn = original(shape, symmetric, std, rng)
        if symmetric:
            drawn = drawn / np.sqrt(2.0)
        return drawn

    patch.setattr(noise, "gaussian_noise", mutant)


def block_scale_ignored_by_noise(patch):
    original = noise.add_noise

    def mutant(total, blocks, std, rng):
        return original(total, {name: replace(block, scale=1.0) for name, block in blocks.items()}, std, rng)

    patch.setattr(noise, "add_noise", mutant)


def noise_uniform(patch):
    def mutant(shape, symmetric, std, rng):
        return rng.uniform(-np.sqrt(3.0) * std, np.sqrt(3.0) * std, shape)

    patch.setattr(noise, "gaussian_noise", mutant)


def noise_truncated(patch):
    original = noise.gaussian_noise
    patch.setattr(
        noise, "gaussian_noise", lambda s, y, std, rng: np.clip(original(s, y, std, rng), -2.5 * std, 2.5 * std)
    )


def noise_only_on_empty_totals(patch):
    original = noise.add_noise

    def mutant(total, blocks, std, rng):
        empty = not any(np.any(value) for value in total.values())
        return original(total, blocks, std if empty else 1e-9, rng)

    patch.setattr(noise, "add_noise", mutant)


def one_draw_for_all_rows_of_a_block(patch):
    def mutant(shape, symmetric, std, rng):
        return np.broadcast_to(rng.normal(0.0, std, shape[-1:]), shape).copy()

    patch.setattr(noise, "gaussian_noise", mutant)


def noise_from_the_global_generator(patch):
    patch.setattr(noise, "gaussian_noise", lambda s, y, std, rng: np.random.normal(0.0, std, s))  # noqa: NPY002


def discrete_noise_halved(patch):
    original = noise.rounded_gaussian
    patch.setattr(noise, "rounded_gaussian", lambda size, steps, bits: original(size, steps // 2, bits))


def discrete_noise_with_one_key(patch):
    patch.setattr(noise.Randomness, "noise_bits", lambda self, step: noise.AESCounter(key=7))


def discrete_noise_not_isometric(patch):
    patch.setattr(lattice, "_isometry", lambda block: np.ones(block.shape[-2:]))


def sums_rounded_at_the_end(patch):
    patch.setattr(DenseStatistics, "rounded_sum", sum_then_rounded)
    patch.setattr(lda_statistics.DocumentStatistics, "rounded_sum", sum_then_rounded)


def lattice_too_coarse(patch):
    original = lattice.Lattice.rounded

    def mutant(self, array, block):
        return 4096 * original(replace(self, unit=4096 * self.unit), array, block)

    patch.setattr(lattice.Lattice, "rounded", mutant)


def one_block_unclipped(patch):
    original = DenseStatistics.norms

    def mutant(self, blocks):
        name = next(iter(blocks))
        return original(DenseStatistics({name: self.arrays[name]}), {name: blocks[name]})

    patch.setattr(DenseStatistics, "norms", mutant)


def clip_per_block(patch):
    """Every block clipped to C by itself, while the noise is that of one vector of norm C."""

    def norms(self, blocks):
        self._blocks = blocks
        return np.zeros(len(next(iter(self.arrays.values()))))

    def weighted_sum(self, weights):
        clip = self._clip
        sums = {}
        for name, array in self.arrays.items():
            lengths = np.linalg.norm(array.reshape(len(array), -1), axis=1) / self._blocks[name].scale
            sums[name] = np.tensordot(np.minimum(1.0, clip / np.maximum(lengths, 1e-300)), np.nan_to_num(array), axes=1)
        return sums

    original = PrivacyPlan.clip_weights

    def clip_weights(self, norms):
        DenseStatistics._clip = self.clip_norm
        return original(self, norms)

    add(patch, DenseStatistics, "_clip", np.inf)
    patch.setattr(DenseStatistics, "norms", norms)
    patch.setattr(DenseStatistics, "weighted_sum", weighted_sum)
    patch.setattr(PrivacyPlan, "clip_weights", clip_weights)


def clip_forgotten(patch):
    patch.setattr(plan_module, "clip_weights", lambda norms, clip_norm: np.isfinite(norms).astype(float))


def lda_norm_without_the_scales(patch):
    original = lda_statistics.DocumentStatistics.norms

    def mutant(self, blocks):
        released, self._scaled_weights = self._scaled_weights, self._word_weights
        norms, self._scaled_weights = original(self, blocks), released
        return norms

    patch.setattr(lda_statistics.DocumentStatistics, "norms", mutant)


def repeated_words_not_merged(patch):
    for module in (lda_statistics, lda):
        patch.setattr(module, "canonical", sp.csr_array)


def divided_by_the_realised_batch(patch):
    original = engine.clipped_sum

    def mutant(model, blocks, source, posterior, plan, randomness, t, *workers):
        total = original(model, blocks, source, posterior, plan, randomness, t, *workers)
        realised = len(plan.sampler(randomness, t)(0).rows(source.n_records))
        return {name: value * plan.sampling_rate * 100.0 / max(realised, 1) for name, value in total.items()}

    patch.setattr(engine, "clipped_sum", mutant)


def number_of_records_read(patch):
    original = ConjugateExponentialModel.step_size
    original_fit = ConjugateExponentialModel.fit

    def fit(self, X, y=None, **arguments):
        self._n = X.shape[0]
        return original_fit(self, X)

    patch.setattr(ConjugateExponentialModel, "fit", fit)
    patch.setattr(
        ConjugateExponentialModel, "step_size", lambda self, t: original(self, t) * (1.0 - 0.1 / (1 + self._n))
    )


def fixed_size_sampler(patch):
    def mutant(start, stop, sampling_rate, key, step, partition):
        rng = np.random.default_rng(np.random.SeedSequence(key, spawn_key=(step,)))
        return np.sort(rng.choice(np.arange(start, stop), round(sampling_rate * (stop - start)), replace=False))

    patch.setattr(sampling, "poisson_sample", mutant)


def same_sample_every_step(patch):
    original = sampling.poisson_sample
    patch.setattr(
        sampling, "poisson_sample", lambda start, stop, q, key, step, part: original(start, stop, q, key, 1, part)
    )


def same_noise_every_step(patch):
    original = noise.Randomness.for_fit.__func__

    def for_fit(cls, state, reproducible):
        return replace(original(cls, state, reproducible), noise_seed=np.random.SeedSequence())

    patch.setattr(noise.Randomness, "for_fit", classmethod(for_fit))
    original_bits = noise.Randomness.noise_bits
    patch.setattr(noise.Randomness, "noise_bits", lambda self, step: original_bits(self, 1))


def noise_seeded_by_random_state(patch):
    original = noise.Randomness.for_fit.__func__
    patch.setattr(noise.Randomness, "for_fit", classmethod(lambda cls, state, reproducible: original(cls, state, True)))


def noise_stored_on_the_model(patch):
    """A generator made once and copied with the estimator: clones would share it."""
    patch.setattr(PrivacyPlan, "randomness", lambda self, state: noise.Randomness.for_fit(12345, True))


def two_statistics_as_two_sampled_steps(patch):
    original = accounting.event
    patch.setattr(accounting, "event", lambda plan, *_: original(replace(plan, n_steps=2 * plan.n_steps)))


def full_batches_accounted_as_sampled(patch):
    original = accounting.event
    patch.setattr(accounting, "event", lambda plan, *_: original(replace(plan, sampling_rate=0.5 * plan.sampling_rate)))


def stops_on_a_private_quantity(patch):
    class Stops:
        """A loop that ends early when the clipped sum is small."""

        def __call__(self, iterable, **_):
            for t in iterable:
                yield t
                if self.small:
                    return

        small = False

    stops = Stops()
    original = engine.clipped_sum

    def mutant(*args):
        total = original(*args)
        stops.small = sum(float(np.sum(np.abs(value))) for value in total.values()) < 40.0
        return total

    patch.setattr(engine, "clipped_sum", mutant)
    patch.setattr(engine, "tqdm", stops)


def bad_row_times_zero(patch):
    def mutant(self, weights):
        return {name: np.tensordot(weights, array, axes=1) for name, array in self.arrays.items()}

    patch.setattr(DenseStatistics, "weighted_sum", mutant)


def bad_record_raises(patch):
    def mutant(task, chunk):
        if not task.model.valid_records(chunk).all():
            raise RuntimeError("a record is not valid")
        return chunk, None

    patch.setattr(partitions, "usable", mutant)


def bad_record_warns(patch):
    import warnings

    original = partitions.usable

    def mutant(task, chunk):
        if not task.model.valid_records(chunk).all():
            warnings.warn("a record was dropped", stacklevel=2)
        return original(task, chunk)

    patch.setattr(partitions, "usable", mutant)


def initialised_from_the_data(patch):
    original = engine.run

    def mutant(model, data, *arguments):
        initial = model.initial
        size = data._X.shape[0]
        model.initial = lambda rng: {name: value + size for name, value in initial(rng).items()}
        return original(model, data, *arguments)

    patch.setattr(engine, "run", mutant)


def private_count_on_the_model(patch):
    original = ConjugateExponentialModel.fit

    def mutant(self, X, y=None, **arguments):
        original(self, X)
        self.n_records_ = X.shape[0]
        return self

    patch.setattr(ConjugateExponentialModel, "fit", mutant)


def records_share_a_normaliser(patch):
    original = DenseStatistics.__init__

    def mutant(self, arrays):
        original(self, arrays)
        for name, array in self.arrays.items():
            if array.ndim > 1 and array.dtype.kind == "f":
                self.arrays[name] = array / (1.0 + np.abs(np.nan_to_num(array)).max(initial=0.0))

    patch.setattr(DenseStatistics, "__init__", mutant)


MUTANTS = [
    (noise_over_root_two, "noise_has_the_stated_size", "beta-bernoulli", "of what the plan states"),
    (noise_over_root_two, "noise_has_the_stated_size", "lda", "of what the plan states"),
    (noise_uniform, "noise_is_gaussian_whatever_the_total", "lda", "not Gaussian"),
    (noise_truncated, "noise_is_gaussian_whatever_the_total", "lda", "the tails are not"),
    (noise_only_on_empty_totals, "noise_is_gaussian_whatever_the_total", "beta-bernoulli", "not Gaussian"),
    (one_draw_for_all_rows_of_a_block, "noise_is_gaussian_whatever_the_total", "lda", "shared between coordinates"),
    (noise_from_the_global_generator, "noise_is_gaussian_whatever_the_total", "lda", "not Gaussian"),
    (symmetric_noise_not_isometric, "noise_has_the_stated_size", "second moments", "of what the plan states"),
    (block_scale_ignored_by_noise, "noise_has_the_stated_size", "second moments", "of what the plan states"),
    (lattice_too_coarse, "hardened_sums_are_exact", "beta-bernoulli", "the rounded sum is not the sum"),
    (lattice_too_coarse, "hardened_sums_are_exact", "second moments", "the rounded sum is not the sum"),
    (one_block_unclipped, "neighbours_stay_within_the_sensitivity", "second moments", "moved the sum by more than C"),
    (one_block_unclipped, "norms_are_joint_and_never_too_small", "second moments", "a norm is smaller than the record"),
    (clip_per_block, "neighbours_stay_within_the_sensitivity", "beta-bernoulli", "moved the sum by more than C"),
    (clip_forgotten, "neighbours_stay_within_the_sensitivity", "lda", "moved the sum by more than C"),
    (lda_norm_without_the_scales, "neighbours_stay_within_the_sensitivity", "lda", "moved the sum by more than C"),
    (lda_norm_without_the_scales, "norms_are_joint_and_never_too_small", "lda", "a norm is smaller than the record"),
    (
        number_of_records_read,
        "everything_else_is_public",
        "beta-bernoulli",
        "something besides the noisy totals depends on a record",
    ),
    (same_noise_every_step, "noise_is_never_shared", "beta-bernoulli", "a noise draw was used twice"),
    (noise_seeded_by_random_state, "noise_is_never_shared", "lda", "a noise draw was used twice"),
    (noise_stored_on_the_model, "noise_is_never_shared", "lda", "a noise draw was used twice"),
    (two_statistics_as_two_sampled_steps, "one_event_per_step", "beta-bernoulli", "not one event per step"),
    (full_batches_accounted_as_sampled, "one_event_per_step", "beta-bernoulli", "not one event per step"),
    # the samples, whose coins are not seeded, decide which of the two messages comes
    (
        stops_on_a_private_quantity,
        "everything_else_is_public",
        "beta-bernoulli",
        "besides the noisy|steps are not the plan",
    ),
    (bad_row_times_zero, "defective_records_change_nothing_else", "second moments", "destroyed the sum"),
    (
        bad_record_raises,
        "defective_records_change_nothing_else",
        "lda",
        "an error that depends on a record: RuntimeError",
    ),
    (bad_record_warns, "everything_else_is_public", "lda", "besides the noisy totals"),
    (
        initialised_from_the_data,
        "everything_else_is_public",
        "lda",
        "something besides the noisy totals depends on a record",
    ),
    (
        private_count_on_the_model,
        "everything_else_is_public",
        "lda",
        "something besides the noisy totals depends on a record",
    ),
    (records_share_a_normaliser, "records_do_not_see_each_other", "second moments", "another one in company"),
]


test_mutant_is_noticed = of_laws(checks, MUTANTS)


def test_words_stored_twice_do_not_escape_the_clip(monkeypatch):
    _clip_of_repeated_words()
    repeated_words_not_merged(monkeypatch)
    with pytest.raises(AssertionError, match="more than one clip"):
        _clip_of_repeated_words()


def _clip_of_repeated_words():
    """A document that stores one word 50 times is one vector of norm 50, not of norm √50."""
    case = BY_NAME["lda"]
    model, plan, _, posterior = checks.prepared(case, 2)
    repeated = sp.csr_array((np.ones(50), np.zeros(50, dtype=np.int32), [0, 50]), shape=(1, 30))
    total = checks.clipped_sum(case, model, plan, repeated, posterior)
    assert np.linalg.norm(total) <= plan.clip_norm * (1.0 + 1e-9), "a document counts for more than one clip"


def test_vocabulary_from_the_data_is_refused(monkeypatch):
    _private_fit_without_vocabulary()
    monkeypatch.setattr(LatentDirichletAllocation, "check_parameters", lambda self: None)  # the mutant
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        _private_fit_without_vocabulary()


def _private_fit_without_vocabulary():
    plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=1)
    with pytest.raises(ValueError, match="reveal rare words"):
        LatentDirichletAllocation(2, privacy=plan).fit(np.ones((4, 3)))

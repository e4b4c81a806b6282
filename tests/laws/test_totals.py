"""Broken copies of the code that the laws of totals must notice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.laws import test_mutants as mutants
from tests.laws import totals
from tests.mutants import of_laws
from vips.core import plan as plan_module
from vips.core.execution import tree
from vips.core.execution.partitions import Task, added
from vips.core.mechanism import lattice as _lattice
from vips.core.mechanism import noise, sampling
from vips.models.topics.statistics import DocumentStatistics

NOT_THE_SUM = "not the sum of its sample over the public rate"


def changed_share(patch, change):
    """Multiply every partition's share by a factor of what its worker knows: ``change(n_taken, n_records, rate)``."""
    original = Task.calls

    def mutant(task, partition, coins):
        n_records = partition.open().n_records
        factor = change(len(coins.rows(n_records)), n_records, task.plan.sampling_rate)
        total = added(call() for call in original(task, partition, coins))
        return iter([lambda: {name: value * factor for name, value in total.items()}])

    patch.setattr(Task, "calls", mutant)


def divided_by_the_realised_share_of_a_partition(patch):
    changed_share(patch, lambda n_taken, n_records, rate: rate * n_records / max(n_taken, 1))


def divided_by_the_number_taken_from_a_partition(patch):
    """A mean, times the expected number of records."""
    changed_share(patch, lambda n_taken, n_records, rate: round(rate * n_records) / max(n_taken, 1))


def small_shares_left_out(patch):
    changed_share(patch, lambda n_taken, *_: float(n_taken > 1))


def weights_relative_to_the_chunk(patch):
    original = plan_module.clip_weights

    def mutant(norms, clip_norm):
        weights = original(norms, clip_norm)
        return weights / max(np.max(weights, initial=0.0), 1e-300)

    patch.setattr(plan_module, "clip_weights", mutant)


def last_of_the_sample_left_out(patch):
    original = sampling.poisson_sample
    patch.setattr(sampling, "poisson_sample", lambda *arguments: original(*arguments)[:-1])


def coins_independent_of_the_partition(patch):
    original = sampling.poisson_sample
    patch.setattr(sampling, "poisson_sample", lambda a, b, q, key, step, partition: original(a, b, q, key, step, 0))


def share_left_out(patch):
    original = tree.TreeSum.push

    def mutant(self, total, level=0):
        if level == 0 and any(count for count, _ in self._levels):
            return
        original(self, total, level)

    patch.setattr(tree.TreeSum, "push", mutant)


def coins_of_neighbouring_rows_shared(patch):
    original = sampling._coins
    patch.setattr(sampling, "_coins", lambda a, b, *arguments: np.repeat(original(a, b, *arguments)[::2], 2)[: b - a])


def documents_averaged(patch):
    original = DocumentStatistics.weighted_sum

    def mutant(self, weights):
        return {name: value * (2.0 / (1 + len(weights))) for name, value in original(self, weights).items()}

    patch.setattr(DocumentStatistics, "weighted_sum", mutant)


def rounded_to_sixteen_units(patch):
    original = _lattice.Lattice.rounded
    patch.setattr(
        _lattice.Lattice,
        "rounded",
        lambda self, array, block: 16 * original(replace(self, unit=16 * self.unit), array, block),
    )


def a_lattice_sixteen_times_coarser(patch):
    """With noise of the same size in fewer units."""
    original = _lattice.Lattice.for_blocks.__func__

    def mutant(cls, *arguments):
        lattice = original(cls, *arguments)
        return cls(16 * lattice.unit, lattice.noise_steps // 16)

    patch.setattr(_lattice.Lattice, "for_blocks", classmethod(mutant))


def rounding_towards_zero(patch):
    patch.setattr(
        _lattice.Lattice,
        "rounded",
        lambda self, array, block: np.trunc(
            totals._embedded(np.asarray(array), block) / (self.unit * block.scale)
        ).astype(np.int64),
    )


def noise_in_sixteen_units(patch):
    original = noise.rounded_gaussian
    patch.setattr(noise, "rounded_gaussian", lambda size, steps, bits: 16 * original(size, steps // 16, bits))


def noise_in_even_units(patch):
    original = noise.rounded_gaussian
    patch.setattr(noise, "rounded_gaussian", lambda size, steps, bits: original(size, steps, bits) // 2 * 2)


test_mutant_is_noticed = of_laws(
    totals,
    [
        (divided_by_the_realised_share_of_a_partition, "totals_are_sums_over_the_public_rate", "lda", NOT_THE_SUM),
        (divided_by_the_realised_share_of_a_partition, "totals_are_sums_over_the_public_rate", "logistic", NOT_THE_SUM),
        (divided_by_the_realised_share_of_a_partition, "totals_are_sums_over_the_public_rate", "network", NOT_THE_SUM),
        (divided_by_the_number_taken_from_a_partition, "totals_are_sums_over_the_public_rate", "lda", NOT_THE_SUM),
        (small_shares_left_out, "totals_are_sums_over_the_public_rate", "lda", NOT_THE_SUM),
        (mutants.divided_by_the_realised_batch, "totals_are_sums_over_the_public_rate", "proportions", NOT_THE_SUM),
        (weights_relative_to_the_chunk, "totals_are_sums_over_the_public_rate", "lda", NOT_THE_SUM),
        (last_of_the_sample_left_out, "totals_are_sums_over_the_public_rate", "beta-bernoulli", NOT_THE_SUM),
        (coins_independent_of_the_partition, "totals_are_sums_over_the_public_rate", "beta-bernoulli", NOT_THE_SUM),
        (share_left_out, "totals_are_sums_over_the_public_rate", "beta-bernoulli", NOT_THE_SUM),
        (coins_of_neighbouring_rows_shared, "totals_are_sums_over_the_public_rate", "beta-bernoulli", NOT_THE_SUM),
        (mutants.fixed_size_sampler, "totals_are_sums_over_the_public_rate", "beta-bernoulli", NOT_THE_SUM),
        (mutants.same_sample_every_step, "totals_are_sums_over_the_public_rate", "beta-bernoulli", NOT_THE_SUM),
        (documents_averaged, "totals_are_sums_over_the_public_rate", "lda", NOT_THE_SUM),
        (rounded_to_sixteen_units, "records_are_rounded_as_finely_as_stated", "beta-bernoulli", "nearest unit"),
        (a_lattice_sixteen_times_coarser, "records_are_rounded_as_finely_as_stated", "lda", "nearest unit"),
        (a_lattice_sixteen_times_coarser, "records_are_rounded_as_finely_as_stated", "network", "nearest unit"),
        (rounding_towards_zero, "records_are_rounded_as_finely_as_stated", "second moments", "nearest unit"),
        (a_lattice_sixteen_times_coarser, "noise_uses_every_point_of_the_lattice", "lda", "leaves points"),
        (mutants.discrete_noise_halved, "noise_uses_every_point_of_the_lattice", "lda", "of what the plan states"),
        (mutants.discrete_noise_with_one_key, "noise_uses_every_point_of_the_lattice", "lda", "draws are shared"),
        (
            mutants.discrete_noise_not_isometric,
            "noise_uses_every_point_of_the_lattice",
            "second moments",
            "in the stated units",
        ),
        (noise_in_sixteen_units, "noise_uses_every_point_of_the_lattice", "lda", "leaves points"),
        (noise_in_even_units, "noise_uses_every_point_of_the_lattice", "beta-bernoulli", "leaves points"),
    ],
)

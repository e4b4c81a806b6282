"""Deliberately broken noise-aware posteriors of networks. Each must be noticed by the check named beside it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.models.belief_networks import test_sbn_noise as tests
from tests.mutants import check_notices
from vips.models.belief_networks import noise_aware
from vips.models.belief_networks.trail import Trail

pytestmark = pytest.mark.usefixtures("many_generated_records")


def moves_go_the_wrong_way(patch):
    original = noise_aware._step

    def step(value, rest, *others):
        return original(value, -rest, *others)

    patch.setattr(noise_aware, "_step", step)


def the_clip_is_not_simulated(patch):
    original = noise_aware._Records.__init__

    def init(self, trail, posterior, blocks, clip_weights, max_iter):
        original(self, trail, posterior, blocks, np.ones_like, max_iter)

    patch.setattr(noise_aware._Records, "__init__", init)


def totals_are_taken_for_those_of_another_network(patch):
    original = Trail.extended

    def extended(self, posterior, average, step_size, is_late):
        trail = original(self, posterior, average, step_size, is_late)
        return replace(trail, at_visible=0.5 * trail.at_visible)

    patch.setattr(Trail, "extended", extended)


def slopes_have_no_hidden_units(patch):
    original = noise_aware._Records.moments

    def moments(self, network, seed):
        of_one = original(self, network, seed)
        return replace(of_one, rows_slope=of_one.rows_slope * np.eye(of_one.rows_slope.shape[-1]))

    patch.setattr(noise_aware._Records, "moments", moments)


def stand_ins_have_no_noise(patch):
    patch.setattr(noise_aware, "_normal", lambda cov, rng: np.zeros(cov.shape[:-1]))


@pytest.mark.parametrize(
    ("check", "mutant", "says"),
    [
        (tests.check_intervals_hold_the_truth_where_those_of_the_fit_do_not, moves_go_the_wrong_way, "intervals are"),
        (tests.check_simulated_totals_are_those_of_records, the_clip_is_not_simulated, "the clip"),
        (
            tests.check_simulated_totals_are_those_of_records,
            totals_are_taken_for_those_of_another_network,
            "clip|totals",
        ),
        (tests.check_slopes_are_those_of_the_means, slopes_have_no_hidden_units, "Not equal"),
        (tests.check_stand_ins_notice_deviations_that_are_too_small, stand_ins_have_no_noise, "factors"),
    ],
)
@pytest.mark.filterwarnings("ignore:Noise hides:vips.PrivacyWarning")
def test_mutants_are_noticed(check, mutant, says, monkeypatch):
    takes_patch = check is tests.check_stand_ins_notice_deviations_that_are_too_small
    check_notices((lambda: check(monkeypatch)) if takes_patch else check, mutant, monkeypatch, says)

"""What is called unread: never, but once in 1,000 fits, what a share of p has; and what nobody has, if noise is small."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from tests.mutants import check_notices
from vips.privacy import unread as module
from vips.privacy.only_noise import LEVEL
from vips.privacy.unread import Seen, unread

N, N_FITS = 1_000.0, 1_000


def seen(counts, values=(), total=N, std=1.0, total_std=1.0, **settings):
    return Seen("'x'", "category", np.atleast_1d(counts).astype(float), std, total, total_std, values, **settings)


def check_false_alarms_are_rare_enough():
    """Columns, or each of a hundred categories, are read in a share of p exactly, and noise is as large as such a count."""
    rng, alarms, n_values = np.random.default_rng(0), 0, 100
    rare = module._LEAST / n_values * N
    for _ in range(N_FITS):
        total, counts = N + 500.0 * rng.standard_normal(), module._LEAST * N + 25.0 * rng.standard_normal(2)
        alarms += bool(unread([seen(count, (), total, 25.0, 500.0) for count in counts]))
        alarms += bool(unread([seen(rare + rng.standard_normal(n_values), range(n_values), N, 1.0, 0.0)]))
    most = 2 * N_FITS * LEVEL
    assert alarms <= most + 4.0 * math.sqrt(most), f"{alarms} of {2 * N_FITS} good fits are called unread"


def test_false_alarms_are_rare_enough():
    check_false_alarms_are_rare_enough()


def check_what_is_rare_and_seen_is_not_named():
    assert unread([seen([900.0, 6.0], "ab")]) == [], "a rare one that stands out is named"
    assert unread([seen([0.0, 900.0], "ab")]) == [
        "'x': of category 'a' nothing was read above the noise; is it written so?"
    ]


def test_what_is_rare_and_seen_is_not_named():
    check_what_is_rare_and_seen_is_not_named()


def test_columns_are_named_as_a_whole():
    (told,) = unread([seen([0.5, -0.5, 0.0], "abc")])
    assert told == "'x': no category was read above the noise; how are they written?"
    assert len(unread([seen([0.0]), seen([500.0]), seen([0.0, 500.0], [None, "b"])])) == 1, "None is not named"
    assert unread([seen([0.0, 0.0], "ab", std=50.0)]) == [], "so large a noise tells nothing"
    assert unread([seen([math.nan, 900.0], ["a", None])]) == []
    assert unread([]) == []


def test_noise_that_may_depend_adds_up():
    z = -norm.ppf(LEVEL / 6)
    std = (
        0.9 * module._LEAST * N / (4.0 * z)
    )  # of one count; of all of them, four times that if they are alike, else twice
    of_all = [seen(np.full(4, 0.0), "abcd", std=std, total_std=0.0, are_independent=kind) for kind in (True, False)]
    assert [of.is_unread(z) for of in of_all] == [True, True]
    larger = [
        seen(np.full(4, 0.0), "abcd", std=1.5 * std, total_std=0.0, are_independent=kind) for kind in (True, False)
    ]
    assert [of.is_unread(z) for of in larger] == [True, False]


def one_level_for_all(patch):
    patch.setattr(module, "ndtri", lambda level: norm.ppf(LEVEL))


def total_without_noise(patch):
    patch.setattr(
        Seen, "_are_unread",
        lambda self, counts, std, least, z: np.logical_and(counts - least * self.total < -z * std, counts <= z * std),
    )  # fmt: skip


def rare_ones_are_named(patch):
    patch.setattr(
        Seen, "_are_unread",
        lambda self, counts, std, least, z: counts - least * self.total < -z * (std + least * self.total_std),
    )  # fmt: skip


@pytest.mark.parametrize(("mutant", "check", "says"), [
    (one_level_for_all, check_false_alarms_are_rare_enough, "good fits are called unread"),
    (total_without_noise, check_false_alarms_are_rare_enough, "good fits are called unread"),
    (rare_ones_are_named, check_what_is_rare_and_seen_is_not_named, "stands out is named"),
])  # fmt: skip
def test_mutants_are_noticed(mutant, check, says, monkeypatch):
    check_notices(check, mutant, monkeypatch, says)

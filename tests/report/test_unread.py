"""What is called unread: never, but once in 1,000 fits, what a share of p has; and what nobody has, if noise is small."""

import math

import numpy as np
from scipy.stats import norm

from tests.mutants import noticed
from vips.report import unread as module
from vips.report.only_noise import LEVEL
from vips.report.unread import Seen, unread

N, N_FITS = 1_000.0, 1_000


def seen(counts, values=(), total=N, std=1.0, total_std=1.0, **settings):
    return Seen("'x'", "category", np.atleast_1d(counts).astype(float), std, total, total_std, values, **settings)


def test_false_alarms_are_rare_enough():
    """Columns, or each of a hundred categories, are read in a share of p exactly, and noise is as large as such a count."""
    rng, alarms, n_values = np.random.default_rng(0), 0, 100
    rare = module._LEAST / n_values * N
    for _ in range(N_FITS):
        total, noise = N + 500.0 * rng.standard_normal(), rng.standard_normal(4)
        columns = [seen(module._LEAST * N + 25.0 * of, (), total, 25.0, 500.0, may_be_missing=True) for of in noise[:2]]
        columns += [seen(module._MOST * N + 25.0 * of, (), total, 25.0, 500.0) for of in noise[2:]]
        alarms += bool(unread(columns))
        alarms += bool(
            unread([seen(rare + rng.standard_normal(n_values), range(n_values), N, 1.0, 0.0, may_be_missing=True)])
        )
    most = 2 * N_FITS * LEVEL
    assert alarms <= most + 4.0 * math.sqrt(most), f"{alarms} of {2 * N_FITS} good fits are called unread"


def test_what_is_rare_and_seen_is_not_named():
    assert unread([seen([900.0, 6.0], "ab")]) == [], "a rare one that stands out is named"
    assert unread([seen([0.0, 900.0], "ab")]) == [
        "'x': of category 'a' nothing was read above the noise; is it written so?"
    ]


def test_what_is_mostly_unread_is_said():
    half = "'x': in fewer than three quarters of the cells a category was read; are the others missing, or written otherwise?"
    assert unread([seen([300.0, 100.0], "ab")]) == [half]
    assert unread([seen([300.0, 100.0], "ab", may_be_missing=True)]) == [], "what was declared is said"
    assert unread([seen([500.0, 230.0], "ab", std=10.0)]) == [], "this may be three quarters of all"
    assert unread([seen([math.nan], total=math.nan, unread=0.3)]) == [
        "'x': in about 30% of the cells no category was read; how are they written?"
    ]
    assert unread([seen([400.0], unread=0.6)]) != [half], "it is said twice"
    assert unread([seen([900.0], unread=0.004)]) == []


def test_columns_are_named_as_a_whole():
    (told,) = unread([seen([0.5, -0.5, 0.0], "abc")])
    assert told == "'x': no category was read above the noise; how are they written?"
    assert len(unread([seen([0.0]), seen([800.0]), seen([0.0, 800.0], [None, "b"])])) == 1, "None is not named"
    assert unread([seen([0.0, 0.0], "ab", std=200.0)]) == [], "so large a noise tells nothing"
    assert unread([seen([math.nan, 900.0], ["a", None])]) == []
    assert unread([]) == []


def test_noise_that_may_depend_adds_up():
    z = -norm.ppf(LEVEL / 6)
    for factor, is_unread_if_alike in ((0.9, True), (1.35, False)):
        std = (
            factor * module._LEAST * N / (4.0 * z)
        )  # of one count; of all, four times that if they are alike, else twice
        four = [seen(np.zeros(4), "abcd", std=std, total_std=0.0, are_independent=kind) for kind in (True, False)]
        assert [of.is_unread(z) for of in four] == [True, is_unread_if_alike]


def one_level_for_all(patch):
    patch.setattr(module, "ndtri", lambda level: norm.ppf(LEVEL))


def total_without_noise(patch):
    patch.setattr(Seen, "_are_rare", lambda self, counts, std, least, z: counts - least * self.total < -z * std)


def rare_ones_are_named(patch):
    patch.setattr(np, "logical_and", lambda are_rare, _: are_rare)


def declared_ones_are_said(patch):
    patch.setattr(Seen, "may_be_missing", property(lambda _: False, lambda *_: None))


test_mutants_are_noticed = noticed(
    (one_level_for_all, test_false_alarms_are_rare_enough, "good fits are called unread"),
    (total_without_noise, test_false_alarms_are_rare_enough, "good fits are called unread"),
    (rare_ones_are_named, test_what_is_rare_and_seen_is_not_named, "stands out is named"),
    (declared_ones_are_said, test_what_is_mostly_unread_is_said, "what was declared is said"),
)  # fmt: skip

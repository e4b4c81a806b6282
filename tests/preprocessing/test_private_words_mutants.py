"""Deliberately broken private vocabularies. Each must be noticed by the check named beside it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from tests.mutants import noticed
from tests.preprocessing import test_private_words as tests
from tests.preprocessing.test_private_table_mutants import fits_are_charged_at_the_end
from vips.preprocessing import _documents, _private_words, _set_union


def every_word_weighs_one(patch):
    original = _set_union._shares

    def shares(*arguments):
        words, weights = original(*arguments)
        return words, np.ones(len(weights))

    patch.setattr(_set_union, "_shares", shares)


def a_record_may_have_any_number_of_words(patch):
    original = _set_union._shares

    def shares(words, starts, known, most, coins):
        kept, _ = original(words, starts, known, 10**9, coins)
        return kept, original(words, starts, known, most, coins)[1].min() * np.ones(len(kept))

    patch.setattr(_set_union, "_shares", shares)


def documents_of_a_person_are_counted_one_by_one(patch):
    original = _private_words.counted_records
    patch.setattr(
        _private_words, "counted_records",
        lambda settings, documents, numbers, most, *named: original(settings, documents, None, None, *named),
    )  # fmt: skip


def the_threshold_forgets_that_a_record_has_several(patch):
    original = _set_union.thresholds
    for module in (_set_union, tests):
        patch.setattr(module, "thresholds", lambda delta, stds, most: original(delta, stds, 1))


def the_threshold_forgets_its_delta(patch):
    for module in (_set_union, tests):
        patch.setattr(module, "thresholds", lambda delta, stds, most: [1.0 for _ in stds])


def phrases_are_of_unknown_words(patch):
    original = _documents.phrases
    patch.setattr(_documents, "phrases", lambda words, length, known: original(words, length, {*words} - {*known}))


def phrases_are_of_all_words(patch):
    patch.setattr(_documents, "phrases", lambda words, length, known: map(" ".join, pairwise(words)))


def phrases_cost_nothing(patch):
    original = _set_union.plans_of_rounds
    patch.setattr(_set_union, "plans_of_rounds", lambda plan, longest=1: original(plan) + [plan] * (longest - 1))


def the_count_costs_nothing(patch):
    original = _set_union.math.sqrt
    patch.setattr(_set_union.math, "sqrt", lambda x: 1.0 if 0.9 < x < 1.0 else original(x))


def each_round_spends_all_of_delta(patch):
    original = _set_union.thresholds
    for module in (_set_union, tests):
        patch.setattr(module, "thresholds", lambda delta, stds, most: [original(delta, [std], most)[0] for std in stds])


def each_round_spends_the_whole_budget(patch):
    for module in (_set_union, tests):
        patch.setattr(module, "plans_of_rounds", lambda plan, longest=1: [replace(plan)] * (1 + longest))


def phrases_of_the_list():
    tests.check_phrases(tests.totals_of, ("the", "sea"))


test_mutants_are_noticed = noticed(
    (every_word_weighs_one, tests.test_a_record_moves_the_totals_by_at_most_one_clip, "many words: a record moves"),
    (a_record_may_have_any_number_of_words, tests.test_a_record_moves_the_totals_by_at_most_one_clip, "many words"),
    (documents_of_a_person_are_counted_one_by_one, tests.test_a_record_moves_the_totals_by_at_most_one_clip,
     "several documents: a record moves"),
    (every_word_weighs_one, phrases_of_the_list, "one phrase often: a record moves the totals of phrases"),
    (documents_of_a_person_are_counted_one_by_one, phrases_of_the_list, "several documents: a record moves the totals of phr"),
    (phrases_are_of_unknown_words, phrases_of_the_list, "a word that is not released"),
    (phrases_are_of_all_words, phrases_of_the_list, "a word that is not released"),
    (phrases_cost_nothing, lambda: tests.test_all_rounds_cost_the_plan(2), "the rounds cost more"),
    (the_threshold_forgets_that_a_record_has_several, tests.test_the_thresholds_hide_what_one_record_adds, "is released"),
    (the_threshold_forgets_its_delta, tests.test_rare_words_are_released_as_seldom_as_stated, "are released"),
    (the_count_costs_nothing, tests.test_a_record_that_is_counted_still_has_norm_one, "that is counted has norm"),
    (each_round_spends_all_of_delta, tests.test_the_thresholds_hide_what_one_record_adds, "is released"),
    (each_round_spends_the_whole_budget, lambda: tests.test_all_rounds_cost_the_plan(1), "the rounds cost more"),
    (each_round_spends_the_whole_budget,
     lambda: tests.test_an_attack_reaches_most_of_the_claim_and_never_exceeds_it(1), "claim is exceeded"),
    (each_round_spends_the_whole_budget, tests.test_noise_is_fresh_and_of_the_stated_size, "another size"),
    (fits_are_charged_at_the_end, tests.test_a_fit_is_charged_before_a_document_is_read, "before the charge"),
)  # fmt: skip

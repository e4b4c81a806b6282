"""Deliberately broken vocabularies of sources. Each must be noticed by the check named beside it."""

from __future__ import annotations

import os

import numpy as np
import pytest

from tests.mutants import noticed
from tests.preprocessing import test_words_of_sources as tests
from tests.preprocessing.test_private_table_mutants import fits_are_charged_at_the_end
from vips.preprocessing import _documents, _set_union, _sorted_words
from vips.preprocessing._sorted_words import WordTask
from vips.privacy import PrivacyPlan


def documents_of_a_person_are_counted_one_by_one(patch):
    original = _documents.counted_records
    patch.setattr(
        _sorted_words, "counted_records",
        lambda settings, documents, numbers, most, *named: original(settings, documents, None, None, *named),
    )  # fmt: skip


def released_words_are_counted_again(patch):
    original = _sorted_words.weighted_words
    patch.setattr(
        _sorted_words, "weighted_words",
        lambda words, starts, known, *arguments: original(words, starts, np.zeros(0, bool), *arguments),
    )  # fmt: skip


def every_word_weighs_one(patch):
    original = _sorted_words.weighted_words

    def weighted(*arguments):
        words, weights = original(*arguments)
        return words, np.ones(len(weights))

    patch.setattr(_sorted_words, "weighted_words", weighted)


def words_are_remembered_from_partition_to_partition(patch):
    original, seen = WordTask.share, []

    def share(self, partition, coins):
        seen.append(partition)
        sums = original(self, partition, coins)
        return sums | {"totals": sums["totals"] / len(seen)}

    patch.setattr(WordTask, "share", share)


def coins_are_flipped_anew(patch):
    original = WordTask.share
    key = iter(range(10**6))
    patch.setattr(WordTask, "share", lambda self, partition, coins: original(self, partition, (next(key), 0)))


def words_are_cut_at_the_end_of_a_block(patch):
    """Every run's block is emptied at once, so that a word may come again."""
    patch.setattr(_sorted_words, "bisect_right", lambda words, last, place: len(words))


def the_last_word_of_a_block_is_lost(patch):
    original = _sorted_words.bisect_right

    def place_after(words, last, place):
        end = original(words, last, place)
        words[end - 1 : end] = words[end - 2 : end - 1] if end > place + 1 else words[end - 1 : end]
        return end

    patch.setattr(_sorted_words, "bisect_right", place_after)


def blocks_share_their_noise(patch):
    def add_noise(self, total, blocks, randomness, step):
        rng = np.random.default_rng(int(self.noise_multiplier * 1000))
        return {name: total[name] + rng.normal(0.0, self.noise_std(), block.shape) for name, block in blocks.items()}

    patch.setattr(PrivacyPlan, "add_noise", add_noise)


def the_threshold_is_one(patch):
    patch.setattr(_set_union, "thresholds", lambda delta, stds, most: [1.0 for _ in stds])


def all_words_are_read_at_once(patch):
    original = _sorted_words._blocks

    def blocks(file):
        read = list(original(file))
        yield [word for words, _ in read for word in words], [total for _, totals in read for total in totals]

    patch.setattr(_sorted_words, "_blocks", blocks)


CLIP = tests.test_a_record_moves_the_totals_by_at_most_one_clip


test_mutants_are_noticed = noticed(
    (documents_of_a_person_are_counted_one_by_one, CLIP, "several documents: a record moves"),
    (released_words_are_counted_again, CLIP, "a known word has a share"),
    (every_word_weighs_one, CLIP, "a record moves"),
    (every_word_weighs_one, lambda: tests.test_a_record_moves_the_totals_of_phrases_by_at_most_one_clip(("the", "sea")), "by"),
    (words_are_remembered_from_partition_to_partition, tests.test_a_share_depends_on_its_partition_alone, "another share"),
    (coins_are_flipped_anew, tests.test_a_share_depends_on_its_partition_alone, "another share"),
    (words_are_cut_at_the_end_of_a_block, tests.test_sorted_runs_add_every_word_once, "there twice"),
    (the_last_word_of_a_block_is_lost, tests.test_sorted_runs_add_every_word_once, "not the sum of its shares"),
    (blocks_share_their_noise, tests.test_every_block_has_fresh_noise, "two words have one draw"),
    (the_threshold_is_one, tests.test_rare_words_are_released_as_seldom_as_stated, "they are released in"),
    (all_words_are_read_at_once, tests.test_memory_holds_one_block_of_each_run, "a merge takes"),
)  # fmt: skip
test_mutants_are_noticed = pytest.mark.repeated(
    "the_threshold_is_one-test_rare_words_are_released_as_seldom_as_stated-they are released in",
    "all_words_are_read_at_once-test_memory_holds_one_block_of_each_run-a merge takes",
)(test_mutants_are_noticed)


def counts_are_kept_for_every_model(patch):
    def folder_of_counts(owner, folder):
        path = os.path.join(folder, "counts-")
        os.makedirs(path, mode=0o700, exist_ok=True)
        return path

    patch.setattr(_documents, "_folder_of_counts", folder_of_counts)


def anybody_may_enter(patch):
    original = _documents._folder_of_counts

    def folder_of_counts(owner, folder):
        path = original(owner, folder)
        os.chmod(path, 0o755)
        return path

    patch.setattr(_documents, "_folder_of_counts", folder_of_counts)


def anybody_may_read(patch):
    original = _documents.whole_file
    patch.setattr(_documents, "whole_file", lambda path, mode: original(path))


test_mutants_of_kept_counts_and_of_charges_are_noticed = noticed(
    (counts_are_kept_for_every_model, tests.test_counts_belong_to_one_vocabulary_and_one_tokeniser, "of another model"),
    (anybody_may_enter, tests.test_kept_counts_are_for_their_owner_only, "a folder is open"),
    (anybody_may_read, tests.test_kept_counts_are_for_their_owner_only, "a file is open"),
    (fits_are_charged_at_the_end, tests.test_a_fit_is_charged_before_a_document_is_read, "before the charge"),
)  # fmt: skip

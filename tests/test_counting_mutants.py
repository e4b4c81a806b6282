"""Deliberately broken counts. Each must be noticed by the check named beside it."""

from __future__ import annotations

import pytest

from tests import test_counting as tests
from tests.mutants import check_notices
from tests.preprocessing.test_private_table_mutants import fits_are_charged_at_the_end
from vips import counting
from vips._secret_bits import secret_below
from vips.data._grouped import GroupedFolder, mapped
from vips.privacy.mechanism import geometric


def rows_are_counted_where_persons_are_protected(patch):
    patch.setattr(counting, "_number", lambda X, groups: X.n_records if hasattr(X, "n_records") else len(X))


def rows_on_disk_are_counted_where_persons_are_protected(patch):
    patch.setattr(GroupedFolder, "n_records", property(lambda self: sum(mapped(f["starts"])[-1] for f in self._files)))


def zero_has_two_signs(patch):
    original = geometric.geometric_noise

    def noise(epsilon):
        return original(epsilon) if secret_below(3) else 0

    patch.setattr(geometric, "geometric_noise", noise)


def noise_is_half_as_large(patch):
    original = geometric.geometric_noise
    patch.setattr(geometric, "geometric_noise", lambda epsilon: original(2.0 * epsilon))


def noise_has_one_sign(patch):
    original = geometric.geometric_noise
    patch.setattr(geometric, "geometric_noise", lambda epsilon: abs(original(epsilon)))


def noise_is_seeded(patch):
    patch.setattr(counting, "geometric_noise", lambda epsilon: 3)


@pytest.mark.parametrize(
    ("mutant", "says"),
    [
        (rows_are_counted_where_persons_are_protected, "a person moves the count by 40"),
        (rows_on_disk_are_counted_where_persons_are_protected, "rows of persons are counted"),
    ],
)
def test_counts_of_rows_are_noticed(mutant, says, monkeypatch, tmp_path):
    check_notices(lambda: tests.check_a_person_moves_the_count_by_one(tmp_path), mutant, monkeypatch, says)


@pytest.mark.parametrize(
    ("mutant", "check", "says"),
    [
        (zero_has_two_signs, tests.check_noise_is_two_sided_geometric, "another law"),
        (noise_is_half_as_large, tests.check_noise_is_two_sided_geometric, "another law"),
        (noise_has_one_sign, tests.check_noise_is_two_sided_geometric, "another law"),
        (noise_is_seeded, tests.check_noise_is_fresh, "draws are shared"),
    ],
)
def test_mutants_of_the_noise_are_noticed(mutant, check, says, monkeypatch):
    check_notices(check, mutant, monkeypatch, says)


def test_a_late_charge_is_noticed(monkeypatch, tmp_path):
    check_notices(
        lambda: tests.check_a_count_is_charged_before_the_records_are_counted(tmp_path),
        fits_are_charged_at_the_end, monkeypatch, "before the charge",
    )  # fmt: skip

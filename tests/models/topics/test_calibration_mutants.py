"""Deliberately broken calibrations. Each must be noticed by the check named beside it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.models.topics import test_calibration as tests
from tests.mutants import check_notices
from vips.models.topics import calibration

pytestmark = pytest.mark.usefixtures("many_generated_documents")


def the_factor_is_ignored(patch):
    original = calibration._by_group
    patch.setattr(calibration, "_by_group", lambda *given: (original(*given)[0], np.ones_like))


def errors_of_stand_ins_are_not_compared(patch):
    original = calibration._by_group
    patch.setattr(calibration, "_by_group", lambda *given: (np.zeros_like, original(*given)[1]))


def one_stand_in_that_went_astray_decides(patch):
    original = calibration._by_group
    patch.setattr(calibration, "_by_group", lambda size, e, o, stand: original(size, e, o, np.zeros_like(stand)))


def errors_are_averaged(patch):
    patch.setattr(calibration, "_agreed", lambda errors: np.nanmean(errors, axis=0))


@pytest.mark.parametrize(
    ("check", "mutant"),
    [
        (tests.check_groups_find_the_part_in_common_and_the_rest, the_factor_is_ignored),
        (tests.check_groups_find_the_part_in_common_and_the_rest, errors_of_stand_ins_are_not_compared),
        (tests.check_groups_find_the_part_in_common_and_the_rest, one_stand_in_that_went_astray_decides),
        (tests.check_one_stand_in_alone_decides_nothing, errors_are_averaged),
    ],
)
@pytest.mark.filterwarnings("ignore:Mean of empty slice:RuntimeWarning")
def test_mutants_are_noticed(check, mutant, monkeypatch):
    check_notices(check, mutant, monkeypatch)

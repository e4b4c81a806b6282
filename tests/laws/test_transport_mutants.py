"""Broken transports of averages, which the laws must notice."""

from __future__ import annotations

import numpy as np
import pytest

from tests.laws import checks, transport
from tests.laws.cases import BY_NAME
from vips.models.gaussian_mixtures.contract import GaussianMixtureModel
from vips.models.topics import lda


def forgets_the_noise(patch):
    original = GaussianMixtureModel.transport
    patch.setattr(
        GaussianMixtureModel,
        "transport",
        lambda self, average, noise_std, *posteriors: (original(self, average, noise_std, *posteriors)[0], noise_std),
    )


def repairs_the_average(patch):
    original = GaussianMixtureModel.transport

    def repaired(self, average, noise_std, *posteriors):
        moved, std = original(self, average, noise_std, *posteriors)
        return moved | {"count": np.maximum(moved["count"], 0.0)}, std

    patch.setattr(GaussianMixtureModel, "transport", repaired)


def depends_on_the_records(patch):
    original, e_step = GaussianMixtureModel.transport, GaussianMixtureModel.expected_statistics
    seen = []

    def remembering(self, records, posterior):
        seen.append(records.shape[0])
        return e_step(self, records, posterior)

    def moved(self, average, noise_std, *posteriors):
        carried, std = original(self, average, noise_std, *posteriors)
        return carried | {"count": carried["count"] + 1e-6 * seen[-1]}, std

    patch.setattr(GaussianMixtureModel, "expected_statistics", remembering)
    patch.setattr(GaussianMixtureModel, "transport", moved)


def merged_topics_have_the_noise_of_one(patch):
    patch.setattr(lda, "scale_of_merged", lambda scale, parents: scale[np.unique(parents, return_index=True)[1]])


@pytest.mark.parametrize(
    ("mutant", "law", "case"),
    [
        (forgets_the_noise, transport.noise_is_carried_with_the_average, "mixture"),
        (repairs_the_average, transport.averages_are_carried_linearly, "mixture"),
        (depends_on_the_records, checks.everything_else_is_public, "mixture"),
        (merged_topics_have_the_noise_of_one, transport.noise_is_carried_with_the_average, "lda"),
    ],
)
def test_the_laws_notice(monkeypatch, mutant, law, case):
    law(BY_NAME[case])
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        law(BY_NAME[case])

"""What is released while a test runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import pytest

from vips import PrivacyPlan


class Released(NamedTuple):
    """A release: totals before and after their noise."""

    plan: PrivacyPlan
    exact: Mapping[str, np.ndarray]
    noisy: Mapping[str, np.ndarray]

    def noise(self, block: str) -> np.ndarray:
        return self.noisy[block] - self.exact[block]


@contextmanager
def releases(noisy: Callable | None = None) -> Iterator[list[Released]]:
    """All releases within the block. ``noisy`` gives other noisy totals of exact ones: ``dict`` the exact ones themselves."""
    seen: list[Released] = []
    original = PrivacyPlan.add_noise

    def add_noise(self, total, *others):
        seen.append(Released(self, total, noisy(total) if noisy else original(self, total, *others)))
        return seen[-1].noisy

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PrivacyPlan, "add_noise", add_noise)
        yield seen

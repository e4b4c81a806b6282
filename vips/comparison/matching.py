"""Parts of two posteriors, whose latent components are matched first."""

from __future__ import annotations

import numpy as np

from vips._alignment import Alignment, align
from vips.parts import Part

__all__ = ["match", "parts_of"]


def match(model, posterior, other) -> Alignment | None:
    """Match the latent components of ``other`` to those of ``posterior``; None if the model has no such components."""
    ours, theirs = model.components(posterior), model.components(other)
    return None if ours is None or theirs is None else align(ours[0], theirs[0], ours[1])


def parts_of(model, posterior, order: np.ndarray | None = None) -> list[Part]:
    """The distributions of a posterior, with latent components in the given order, which labels follow.

    Raises
    ------
    TypeError
        If the distributions of the posterior are unknown.
    """
    return model.posterior_parts(posterior if _is_identity(order) else model.in_order(posterior, order))


def _is_identity(order: np.ndarray | None) -> bool:
    return order is None or np.array_equal(order, np.arange(len(order)))

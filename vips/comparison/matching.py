"""Parts of two posteriors, their latent components matched first."""

from __future__ import annotations

import numpy as np

from vips.comparison.alignment import Alignment, align
from vips.parts import Part

__all__ = ["match", "parts_of"]


def match(model, posterior, other) -> Alignment | None:
    """Latent components of ``other`` in the order of those of ``posterior``; None where there are no such components."""
    ours, theirs = model.components(posterior), model.components(other)
    return None if ours is None or theirs is None else align(ours[0], theirs[0], ours[1])


def parts_of(model, posterior, order: np.ndarray | None = None) -> list[Part]:
    """The distributions of a posterior; latent components in that order, in which labels count.

    Raises
    ------
    TypeError
        For a posterior whose distributions are not known.
    """
    return model.posterior_parts(posterior if _is_identity(order) else model.in_order(posterior, order))


def _is_identity(order: np.ndarray | None) -> bool:
    return order is None or np.array_equal(order, np.arange(len(order)))

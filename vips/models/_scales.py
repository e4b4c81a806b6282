"""Scales of blocks, by which a typical record has norm 1 and noise costs least."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from vips.core.sums import Block

__all__ = ["blocks_of_least_cost"]


def blocks_of_least_cost(
    kinds: Mapping[str, tuple[tuple[int, ...], float, float]], symmetric: Collection[str] = ()
) -> dict[str, Block]:
    """Blocks with these scales (docs/gaussian_mixtures.md).

    Parameters
    ----------
    kinds : mapping
        Of each block its shape, the square of a typical record's norm in it, and the cost of noise of standard deviation 1.
    symmetric : collection of str
        Names of the symmetric blocks.
    """
    whole = sum(np.sqrt(norm * cost) for _, norm, cost in kinds.values())
    return {
        name: Block(shape, name in symmetric, float(np.sqrt(whole * np.sqrt(norm / cost))))
        for name, (shape, norm, cost) in kinds.items()
    }

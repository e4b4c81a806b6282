"""A network that learns nothing: one hidden unit for each tile of 3×3 pixels, on if most observed pixels of the tile are on.

A hidden pixel takes the value of its tile. If as many pixels are on as off, or none is observed, the surrounding tiles
decide, then 0. If all pixels are observed it reconstructs them well, without any training data.
"""

from __future__ import annotations

import numpy as np

__all__ = ["predict"]

TILE = 3


def predict(images: np.ndarray, observed: np.ndarray) -> np.ndarray:
    """Predictions of all pixels.

    Parameters
    ----------
    images, observed : bool arrays of shape (n_images, side²)

    Returns
    -------
    bool ndarray of the same shape
    """
    side = round(np.sqrt(images.shape[1]))
    votes = _by_tile(np.where(observed, 2.0 * images - 1.0, 0.0).reshape(-1, side, side))
    on = np.where(votes != 0.0, votes, _with_neighbours(votes)) > 0.0
    return np.repeat(np.repeat(on, TILE, axis=1), TILE, axis=2)[:, :side, :side].reshape(images.shape)


def _by_tile(votes: np.ndarray) -> np.ndarray:
    """Sums over tiles; those at the right and lower border may be smaller."""
    missing = -votes.shape[1] % TILE
    padded = np.pad(votes, ((0, 0), (0, missing), (0, missing)))
    n_tiles = padded.shape[1] // TILE
    return padded.reshape(-1, n_tiles, TILE, n_tiles, TILE).sum(axis=(2, 4))


def _with_neighbours(votes: np.ndarray) -> np.ndarray:
    """Sums over each tile and the eight around it."""
    padded = np.pad(votes, ((0, 0), (1, 1), (1, 1)))
    n = votes.shape[1]
    return sum(padded[:, i : i + n, j : j + n] for i in range(3) for j in range(3))

"""Accuracy on hidden and on observed pixels; predictions from each pixel alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

__all__ = ["Scored", "majority", "score"]

Predict = Callable[[np.ndarray, np.ndarray], np.ndarray]
N_OBSERVED_IMAGES = 100  # the paper's number of test images for each seed


class Scored:
    """Test images with a random half of their pixels hidden: the same half for every method and seed.

    Parameters
    ----------
    images : bool array of shape (n_images, n_pixels)
    n_images : int, optional
        Number of images to use, chosen at random once.
    """

    def __init__(self, images: np.ndarray, n_images: int | None = None) -> None:
        rng = np.random.default_rng(2016)
        rows = np.sort(rng.permutation(len(images))[:n_images])
        self.images = images[rows]
        self.observed = rng.random(self.images.shape) < 0.5


def score(predict: Predict, scored: Scored, seed: int) -> dict[str, float]:
    """Shares of pixels that are predicted correctly.

    Parameters
    ----------
    predict : function of images and a boolean array of observed pixels
        Returns probabilities or booleans, of the shape of the images.
    scored : Scored
    seed : int
        Chooses the images on which observed pixels are scored.

    Returns
    -------
    dict
        ``hidden``: for the hidden half, given the other half. ``observed``: for whole images, given the same whole images.
    """
    images, observed = scored.images, scored.observed
    seen = np.where(observed, images, False)  # hidden pixels are not even passed on
    right = (predict(seen, observed) > 0.5) == images
    few = images[np.random.default_rng(seed).permutation(len(images))[:N_OBSERVED_IMAGES]]
    whole = (predict(few, np.ones(few.shape, bool)) > 0.5) == few
    return {"hidden": float(right[~observed].mean()), "observed": float(whole.mean())}


def majority(training: np.ndarray) -> Predict:
    """Each pixel as in most training images (not private)."""
    values = training.mean(axis=0)
    return lambda images, observed: np.broadcast_to(values, images.shape)

"""From noisy topic-word totals to valid Dirichlet parameters."""

from __future__ import annotations

import numpy as np

__all__ = ["denoise_counts"]


def denoise_counts(noisy: np.ndarray, noise_std: float) -> np.ndarray:
    return np.maximum(noisy, 0.0)

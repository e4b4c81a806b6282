"""Averages of totals, carried from the coordinates of one posterior to those of the next: y' = B y + b.

    count' = n,   linear' = B s + n b,   second' = B S Bᵀ + B s bᵀ + b (B s)ᵀ + n b bᵀ            B = L'⁻¹ L,  b = L'⁻¹ (m - m')

A component that was split begins anew: each half gets its portion of the count, and the moments that its parameters say.
Noise is carried entry-wise independent: the mean square of its entries in a component.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vips.models._gaussians.posterior import MixturePosterior, applied

__all__ = ["carried"]


def carried(
    average: Mapping[str, np.ndarray],
    noise_std: Mapping[str, float | np.ndarray],
    previous: MixturePosterior,
    posterior: MixturePosterior,
    centre: float = 0.0,
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Average and standard deviations of its noise in the coordinates of ``posterior``; linear in ``average``.

    With a ``centre`` c, ``second`` is S - c n I, of full or diagonal covariances.
    """
    kind, d = posterior.covariance_type, posterior.mean.shape[1]
    inverse, factors = posterior.inverse_factors, previous.factors
    parent, portion = posterior.parent, posterior.portion
    is_new = portion < 1.0
    B = inverse @ factors[parent] if kind in ("full", "tied") else inverse * factors[parent]
    b = applied(inverse, previous.mean[parent] - posterior.mean)
    totals = {name: portion * average[name][parent] for name in average if name not in ("linear", "second")}
    n = totals.get("weight", totals["count"])
    image = applied(B, average["linear"][parent])
    if kind in ("full", "tied"):
        cross = image[:, :, None] * b[:, None, :]
        moved = cross + np.swapaxes(cross, 1, 2) + n[:, None, None] * b[:, :, None] * b[:, None, :]
        if kind == "full":
            one = centre * np.eye(d)
            whole = average["second"][parent] + average["count"][parent][:, None, None] * one
            second = B @ whole @ np.swapaxes(B, 1, 2) + moved
            second = np.where(is_new[:, None, None], totals["count"][:, None, None] * np.eye(d), second)
            second = second - totals["count"][:, None, None] * one
        else:
            second = B[0] @ average["second"] @ B[0].T + moved[~is_new].sum(axis=0)
            if is_new.any():
                second = totals["count"].sum() * np.eye(d)
    else:
        if kind == "diag":
            whole = average["second"][parent] + centre * average["count"][parent][:, None]
            second = np.square(B[:, 0]) * whole + 2.0 * image * b + n[:, None] * np.square(b)
            second = np.where(is_new[:, None], totals["count"][:, None], second) - centre * totals["count"][:, None]
        else:
            second = np.square(B[:, 0, 0]) * average["second"][parent]
            second += 2.0 * (image * b).sum(axis=1) + n * np.square(b).sum(axis=1)
            second = np.where(is_new, totals["count"] * d, second)
    linear = np.where(is_new[:, None], 0.0, image + n[:, None] * b)
    return totals | {"linear": linear, "second": second}, _noise(noise_std, posterior, B, b, is_new, centre)


def _noise(
    noise_std, posterior: MixturePosterior, B: np.ndarray, b: np.ndarray, is_new: np.ndarray, centre: float
) -> dict:
    kind, (n_components, d) = posterior.covariance_type, posterior.mean.shape
    parent, portion = posterior.parent, posterior.portion

    def variance(name: str) -> np.ndarray:
        return np.square(np.broadcast_to(np.asarray(noise_std[name]).reshape(-1), n_components)[parent])

    deviations = {name: portion * np.sqrt(variance(name)) for name in noise_std if name not in ("linear", "second")}
    of_count = np.square(deviations.get("weight", deviations["count"]))
    squares = np.square(B).sum(axis=(1, 2))  # ‖B‖²
    lengths = np.square(b).sum(axis=1)  # ‖b‖²
    linear = np.where(is_new, 0.0, squares / d * variance("linear") + lengths / d * of_count)
    if kind in ("full", "tied"):
        inner = np.swapaxes(B, 1, 2) @ B
        of_second = 0.5 * (squares**2 + np.square(inner).sum(axis=(1, 2)))
        of_linear = 2.0 * (squares * lengths + np.square(np.swapaxes(B, 1, 2) @ b[:, :, None]).sum(axis=(1, 2)))
        entries = d * (d + 1) / 2
    elif kind == "diag":
        of_second, entries = (B**4).sum(axis=(1, 2)), d
        of_linear = 4.0 * np.square(B[:, 0] * b).sum(axis=1)
    else:
        of_second, entries = B[:, 0, 0] ** 4, 1
        of_linear = 4.0 * np.square(B[:, 0] * b).sum(axis=1)
    of_total = (b**4).sum(axis=1) if kind == "diag" else lengths**2
    if centre:  # S' - c n' I takes n (c (B Bᵀ - I) + b bᵀ) from the count
        if kind == "diag":
            of_total = np.square(centre * (np.square(B[:, 0]) - 1.0) + np.square(b)).sum(axis=1)
        else:
            change = centre * (B @ np.swapaxes(B, 1, 2) - np.eye(d)) + b[:, :, None] * b[:, None, :]
            of_total = np.square(change).sum(axis=(1, 2))
    if kind == "tied":
        second = of_second[0] * np.square(np.asarray(noise_std["second"]).reshape(-1)[0])
        second += (of_linear * variance("linear") + of_total * of_count).sum()
        second = np.asarray(second / entries)
        if is_new.any():
            # halves of one parent hold the same noise, and add up to it
            second = (variance("count") / np.bincount(parent)[parent]).sum() * d / entries
        return deviations | {"linear": np.sqrt(linear)[:, None], "second": np.sqrt(second).reshape(1, 1)}
    second = (of_second * variance("second") + of_linear * variance("linear") + of_total * of_count) / entries
    restarted = np.square((1.0 - centre) * deviations["count"]) * (d * d if kind == "spherical" else d / entries)
    second = np.sqrt(np.where(is_new, restarted, second))
    shape = {"full": (-1, 1, 1), "diag": (-1, 1), "spherical": (-1,)}[kind]
    return deviations | {"linear": np.sqrt(linear)[:, None], "second": second.reshape(shape)}

"""What a private fit of a belief network keeps of its last steps: post-processing of released numbers.

A noisy total says something about the true network only together with the network at which its step was computed. Over the
second half of a fit's steps, both are averaged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np

__all__ = ["KEPT", "Trail"]

KEPT = ("count", "hidden", "visible", "weights")  # blocks; the others only give the lengths of steps
_LEAST_STEP = 1e-6  # with a smaller ρ a running average does not tell the total of a step


@dataclass(frozen=True)
class Trail:
    """Averages over the last steps.

    Parameters
    ----------
    n_steps : int
        Number of steps so far that were averaged.
    at_weights, at_visible, at_visible_var, at_hidden, at_coupling : ndarray
        Of the posteriors of their E-steps: means of W, c, variances of c, means of b, and the coupling.
    count, hidden, visible, weights : ndarray
        Noisy totals of these steps, over the sampling rate.
    last_count, last_hidden, last_visible, last_weights : ndarray
        The running averages after the last step, to recover the total of the next one.
    """

    n_steps: int
    at_weights: np.ndarray
    at_visible: np.ndarray
    at_visible_var: np.ndarray
    at_hidden: np.ndarray
    at_coupling: np.ndarray
    count: np.ndarray
    hidden: np.ndarray
    visible: np.ndarray
    weights: np.ndarray
    last_count: np.ndarray
    last_hidden: np.ndarray
    last_visible: np.ndarray
    last_weights: np.ndarray

    @classmethod
    def start(cls, average: Mapping[str, np.ndarray]) -> Trail:
        """Before the first step, after which averages begin at ``average``."""
        J, K = np.shape(average["weights"])
        at = {"at_weights": (J, K), "at_visible": J, "at_visible_var": J, "at_hidden": K, "at_coupling": (K, K)}
        zeros = {name: np.zeros(shape) for name, shape in at.items()}
        zeros |= {name: np.zeros(np.shape(average[name])) for name in KEPT}
        return cls(0, **zeros, **{f"last_{name}": np.array(average[name]) for name in KEPT})

    def extended(
        self, posterior, average: Mapping[str, np.ndarray], step_size: Mapping[str, float], is_late: bool
    ) -> Trail:
        """After a step.

        Parameters
        ----------
        posterior : NetworkPosterior
            Of the step's E-step.
        average : dict
            Running averages of the totals after the step.
        step_size : dict
            ρ by block.
        is_late : bool
            Whether the step belongs to those that are averaged.
        """
        last = {f"last_{name}": np.array(average[name]) for name in KEPT}
        if not is_late or min(step_size[name] for name in KEPT) < _LEAST_STEP:
            return replace(self, **last)
        now = {
            "at_weights": posterior.weights.mean,
            "at_visible": posterior.visible_bias.mean,
            "at_visible_var": posterior.visible_bias.var,
            "at_hidden": posterior.hidden_bias.mean,
            "at_coupling": posterior.coupling,
        }
        for name in KEPT:
            rho = step_size[name]
            now[name] = (average[name] - (1.0 - rho) * getattr(self, f"last_{name}")) / rho
        n_steps = self.n_steps + 1
        means = {name: getattr(self, name) + (value - getattr(self, name)) / n_steps for name, value in now.items()}
        return Trail(n_steps, **means, **last)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """For saving."""
        return {field.name: np.asarray(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Trail:
        """Inverse of ``to_arrays``.

        Raises
        ------
        ValueError
            If a file holds numbers that no fit leaves.
        """
        n_steps = int(arrays["n_steps"])
        for name, value in arrays.items():
            if np.iscomplexobj(value) or not np.isfinite(value).all():
                raise ValueError(f"`{name}` must hold finite numbers.")
        if n_steps < 0 or (n_steps and not (arrays["at_visible_var"] > 0.0).all()):
            raise ValueError("`n_steps` must be at least 0, and after a step `at_visible_var` positive.")
        return cls(**(dict(arrays) | {"n_steps": n_steps}))

"""``python -m experiments accounting``: δ against ε, by the routes of the Rényi notes and by privacy loss distributions."""

from __future__ import annotations

import argparse

import numpy as np

from experiments.results import results_folder, write_json
from vips import PrivacyPlan

SETTINGS = {
    "the paper's topic model: q = 0.05, σ = 1.24, T = 20": {
        "noise_multiplier": 1.24, "sampling_rate": 0.05, "n_steps": 20
    },
    "a long fit: q = 0.01, σ = 1, T = 2,000": {"noise_multiplier": 1.0, "sampling_rate": 0.01, "n_steps": 2000},
}  # fmt: skip
# label: accountant, and whether steps are sampled
ROUTES = {
    "1. sample each step, then strong composition": ("strong", True),
    "2. moments, without sampling": ("moments", False),
    "3. moments of the sampled Gaussian": ("moments", True),
    "Rényi divergences": ("rdp", True),
    "privacy loss distributions (default)": ("pld", True),
}


def curves(settings: dict, deltas: np.ndarray) -> dict[str, list[float]]:
    """ε at every δ, by route."""
    sampled = PrivacyPlan(**settings)
    full = PrivacyPlan(**{**settings, "sampling_rate": 1.0})
    return {
        label: [(sampled if sampling else full).epsilon(float(delta), name) for delta in deltas]
        for label, (name, sampling) in ROUTES.items()
    }


def plot(found: dict, deltas: np.ndarray, path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(found), figsize=(12.0, 5.0), layout="constrained", sharey=True)
    for panel, (title, lines) in zip(axes, found.items(), strict=True):
        for (label, epsilons), style in zip(lines.items(), ("--", "-.", ":", "-", "-"), strict=True):
            panel.plot(epsilons, deltas, style, label=label, linewidth=2.5 if "default" in label else 1.5)
        panel.set(xscale="log", yscale="log", xlabel="ε", title=title)
        panel.grid(alpha=0.3)
    axes[0].set_ylabel("δ")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=9)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main(arguments: list[str]) -> None:
    argparse.ArgumentParser(prog="python -m experiments accounting", description=__doc__).parse_args(arguments)
    deltas = np.logspace(-12, -2, 41)
    found = {title: curves(settings, deltas) for title, settings in SETTINGS.items()}
    folder = results_folder("accounting")
    write_json(folder / "curves.json", {"delta": deltas.tolist(), **found})
    plot(found, deltas, folder / "accounting.png")
    at = int(np.argmin(np.abs(np.log(deltas / 1e-5))))
    for title, lines in found.items():
        print(f"{title}; ε at δ = {deltas[at]:.3g}")
        for label, epsilons in lines.items():
            print(f"  {label:48s} {epsilons[at]:10.3f}")
    print(f"written to {folder}")

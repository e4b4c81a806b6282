"""``python -m experiments accounting``: δ against ε, by several composition theorems and by privacy loss distributions."""

from __future__ import annotations

import numpy as np

from experiments.options import folder_of, parser_of
from experiments.results import write_json
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
STYLES = ("--", "-.", ":", "-", "-")
DELTAS, QUICK_DELTAS = np.logspace(-12, -2, 41), np.array([1e-12, 1e-9, 1e-5])


def curves(settings: dict, deltas: np.ndarray) -> dict[str, list[float]]:
    """ε at every δ, by route; infinite if the accountant proves no bound."""
    sampled = PrivacyPlan(**settings)
    full = PrivacyPlan(**{**settings, "sampling_rate": 1.0})
    return {
        label: [(sampled if sampling else full).epsilon(float(delta), name) for delta in deltas]
        for label, (name, sampling) in ROUTES.items()
    }


def plot(by_setting: dict, deltas: np.ndarray, path) -> None:
    """A panel for each setting. An arrow marks the smallest δ of a curve below which ε is infinite."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(by_setting), figsize=(12.0, 5.0), layout="constrained", sharey=True)
    has_infinite = False
    for panel, (title, lines) in zip(axes, by_setting.items(), strict=True):
        for (label, epsilons), style in zip(lines.items(), STYLES, strict=True):
            width = 2.5 if "default" in label else 1.5
            (line,) = panel.plot(epsilons, deltas, style, label=label, linewidth=width)
            finite = np.flatnonzero(np.isfinite(epsilons))
            if 0 < len(finite) < len(epsilons):
                end = finite[0]  # deltas ascend
                panel.plot(epsilons[end], deltas[end], ">", color=line.get_color(), markersize=9)
                has_infinite = True
        panel.set(xscale="log", yscale="log", xlabel="ε", title=title)
        panel.grid(alpha=0.3)
    axes[0].set_ylabel("δ")
    handles, labels = axes[0].get_legend_handles_labels()
    if has_infinite:
        handles.append(plt.Line2D([], [], color="0.3", linestyle="none", marker=">", markersize=9))
        labels.append("ε = ∞ at smaller δ")
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=9)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main(arguments: list[str]) -> None:
    options = parser_of("experiments accounting", __doc__).parse_args(arguments)
    folder = folder_of("accounting", options)
    deltas = QUICK_DELTAS if options.quick else DELTAS
    by_setting = {title: curves(settings, deltas) for title, settings in SETTINGS.items()}
    at = int(np.argmin(np.abs(np.log(deltas / 1e-5))))
    for title, lines in by_setting.items():
        print(f"{title}; ε at δ = {deltas[at]:.3g}")
        for label, epsilons in lines.items():
            infinite = deltas[~np.isfinite(epsilons)]
            note = f"   ∞ for δ ≤ {infinite.max():.3g}" if len(infinite) else ""
            print(f"  {label:48s} {epsilons[at]:10.3f}{note}")
    if folder is None:
        return
    write_json(folder / "curves.json", {"delta": deltas.tolist(), **by_setting})
    plot(by_setting, deltas, folder / "accounting.png")
    print(f"written to {folder}")

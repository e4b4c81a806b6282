"""Pictures: accuracy against the batch size, learnt weights, reconstructions of half-seen images, samples."""

from __future__ import annotations

import numpy as np

__all__ = ["draw_images", "plot_figure7"]

SIDE, N_SHOWN = 28, 10


def _pyplot():
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def plot_figure7(rows: list[dict], title: str, path) -> None:
    """Both measures against S, a panel for each."""
    plt = _pyplot()
    figure, panels = plt.subplots(1, 2, figsize=(11, 5.4), layout="constrained")
    known = [row for row in rows if "batch_size" not in row]  # without learning: lines across
    rows = [row for row in rows if "batch_size" in row]
    methods = list(dict.fromkeys(row["method"] for row in rows))
    sizes = sorted({row["batch_size"] for row in rows})
    panel_titles = {"hidden": "hidden pixels", "observed": "observed pixels (the paper's measure; needs no learning)"}
    for axes, (key, above) in zip(panels, panel_titles.items(), strict=True):
        for method, style in zip(methods, ("ko:", "C0o-", "C2o-", "C3s--", "C4s--"), strict=False):
            of_method = [row for row in rows if row["method"] == method]
            mean = np.array([np.mean(row[key]) for row in of_method])
            spread = np.array([np.std(row[key], ddof=1) if len(row[key]) > 1 else 0.0 for row in of_method])
            label = method + (" (no guarantee)" if "claimed" in of_method[0] else "")
            axes.errorbar([row["batch_size"] for row in of_method], mean, spread, fmt=style, capsize=3, label=label)
        for row, color in zip(known, ("silver", "gray"), strict=False):
            axes.axhline(row[key][0], color=color, linewidth=1.0, label=row["method"])
        axes.set(xscale="log", xlabel="S, expected batch size", title=above)
        axes.set_xticks(sizes, sizes)
        axes.minorticks_off()
    panels[0].set_ylabel("share of pixels predicted right")
    figure.suptitle(title)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def draw_images(models: dict[str, object], private: str, scored, path) -> None:
    """Weights of ``models[private]``, reconstructions of half-seen images, and samples, in one picture."""
    plt = _pyplot()
    reconstructed, sampled = _reconstructions(models, scored), _samples(models)
    heights = 3.6, 1.15 * len(reconstructed), 1.15 * len(sampled)
    figure = plt.figure(figsize=(N_SHOWN, sum(heights)), layout="constrained")
    upper, middle, lower = figure.subfigures(3, 1, height_ratios=heights)
    _draw_weights(upper, models[private].components_, f"weights of hidden units ({private})")
    _draw_lines(middle, reconstructed)
    _draw_lines(lower, sampled)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _reconstructions(models: dict[str, object], scored) -> dict[str, np.ndarray]:
    """Images, their observed halves, and probabilities of all pixels given these halves."""
    images, observed = scored.images[:N_SHOWN], scored.observed[:N_SHOWN]
    lines = {
        "test images": images.astype(float),
        "their observed halves (grey: hidden)": np.where(observed, images, 0.5),
    }
    return lines | {f"from that, {name}": model.reconstruct(images, observed) for name, model in models.items()}


def _samples(models: dict[str, object]) -> dict[str, np.ndarray]:
    """Probabilities of pixels, for hidden units drawn from the network."""
    rng = np.random.default_rng(0)
    lines = {}
    for name, model in models.items():
        probability = 1.0 / (1.0 + np.exp(-model.intercept_hidden_))
        hidden = rng.random((N_SHOWN, len(probability))) < probability
        lines[f"samples, {name}"] = model.inverse_transform(hidden.astype(float))
    return lines


def _draw_weights(figure, weights: np.ndarray, title: str) -> None:
    """Hidden units with the largest weights first."""
    weights = weights[np.argsort(-np.linalg.norm(weights, axis=1))]
    largest = np.quantile(np.abs(weights), 0.999)
    grid = figure.subplots(-(-len(weights) // N_SHOWN), N_SHOWN)
    for axes in grid.flat:
        axes.set_axis_off()
    for axes, image in zip(grid.flat, weights, strict=False):
        axes.imshow(image.reshape(SIDE, SIDE), cmap="RdBu_r", vmin=-largest, vmax=largest)
    figure.suptitle(title, fontsize=9)


def _draw_lines(figure, lines: dict[str, np.ndarray]) -> None:
    for axes, (name, images) in zip(figure.subplots(len(lines), N_SHOWN), lines.items(), strict=True):
        axes[0].set_title(name, loc="left", fontsize=8)
        for ax, image in zip(axes, images, strict=True):
            ax.imshow(image.reshape(SIDE, SIDE), cmap="gray_r", vmin=0.0, vmax=1.0)
            ax.set_axis_off()

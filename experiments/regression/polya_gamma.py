"""``python -m experiments polya_gamma``: E ω against c, by formula and by draws (Figure 4 of the paper)."""

from __future__ import annotations

import numpy as np

from experiments.options import folder_of, parser_of
from experiments.results import write_json
from vips.expfam import PolyaGamma, polya_gamma_mean

SHAPES = (1, 2, 4)
N_DRAWS, QUICK_DRAWS = 2000, 200


def curves(tilts: np.ndarray, dots: np.ndarray, n_draws: int, seed: int) -> dict[str, dict[str, list[float]]]:
    """For each b: E ω at every tilt, and at every dot the mean of the draws with its standard error."""
    rng, by_shape = np.random.default_rng(seed), {}
    for shape in SHAPES:
        draws = PolyaGamma(shape, dots).sample(n_draws, rng)
        by_shape[f"b = {shape}"] = {
            "mean": polya_gamma_mean(tilts, shape).tolist(),
            "mean_at_dots": polya_gamma_mean(dots, shape).tolist(),
            "mean_of_draws": draws.mean(axis=0).tolist(),
            "standard_error": (draws.std(axis=0, ddof=1) / np.sqrt(n_draws)).tolist(),
        }
    return by_shape


def plot(by_shape: dict, tilts: np.ndarray, dots: np.ndarray, path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panel = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
    panel.plot(tilts, by_shape["b = 1"]["mean"], color="k")
    panel.set(
        xlabel="c, root of the mean square of the linear predictor", ylabel="E ω, mean of the Pólya-Gamma variable"
    )
    panel.set(xlim=(0.0, tilts[-1]), ylim=(0.0, 0.27), title="Weight of a record in logistic regression (b = 1)")
    inset = panel.inset_axes((0.42, 0.34, 0.55, 0.56))
    for label, lines in by_shape.items():
        (line,) = inset.plot(tilts, lines["mean"], label=label)
        error = 3.0 * np.array(lines["standard_error"])
        inset.errorbar(dots, lines["mean_of_draws"], error, fmt="o", color=line.get_color(), markersize=3)
    inset.set(ylim=(0.0, None))
    inset.set_title("other b; dots: draws ± 3 standard errors", fontsize=8)
    inset.legend(fontsize=8)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main(arguments: list[str]) -> None:
    parser = parser_of("experiments polya_gamma", __doc__)
    parser.add_argument("--draws", type=int, help=f"per dot; {N_DRAWS} by default")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    folder = folder_of("polya_gamma", options)
    n_draws = options.draws or (QUICK_DRAWS if options.quick else N_DRAWS)
    tilts, dots = np.linspace(0.0, 20.0, 401), np.linspace(0.0, 20.0, 9)
    by_shape = curves(tilts, dots, n_draws, options.seed)
    for label, lines in by_shape.items():
        exact, drawn, error = (np.array(lines[name]) for name in ("mean_at_dots", "mean_of_draws", "standard_error"))
        print(f"{label}: E ω at c = 0 {exact[0]:.4f}, draws at most {np.abs((drawn - exact) / error).max():.1f} "
              f"standard errors away")  # fmt: skip
    if folder is None:
        return
    description = {"n_draws": n_draws, "seed": options.seed, "tilt": tilts.tolist(), "tilt_of_dots": dots.tolist()}
    write_json(folder / "results.json", description | by_shape)
    plot(by_shape, tilts, dots, folder / "figure4.png")
    print(f"written to {folder}")

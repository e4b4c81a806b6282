"""``python -m experiments gaussian_mixture``: Gaussian mixtures of digits, private and not, beside EM and the paper's DP-EM.

16 low-frequency coefficients (4 × 4, discrete cosine transform) of each of 60,000 images of digits, and 20 components with full
covariances. Rows are scaled to a public norm of 15. Log density of 10,000 test images, in nats per image.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.fft import dctn
from sklearn.mixture import GaussianMixture

from experiments.mixtures.dp_em import DPEM
from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text
from experiments.stand_ins import grey_digits
from vips import BayesianGaussianMixture, PrivacyPlan

EPSILONS, DELTA, N_SEEDS, N_COMPONENTS, N_STEPS, NORM = (0.5, 1.0, 4.0), 1e-5, 5, 20, 60, 15.0
DP_EM_STEPS = (10, 60)


def main(arguments: list[str]) -> None:
    parser = parser_of("experiments gaussian_mixture", __doc__)
    parser.add_argument("--seeds", type=int, default=N_SEEDS, help="fits of each kind")
    options = parser.parse_args(arguments)
    folder = folder_of("gaussian_mixture", options)
    train, test = map(coefficients, grey_digits(options.quick))
    n_components, n_steps, n_seeds = (3, 8, 1) if options.quick else (N_COMPONENTS, N_STEPS, options.seeds)
    seeds = range(n_seeds)

    theirs = GaussianMixture(1, random_state=0).fit(train)
    rows = [row("one Gaussian", None, [theirs.score(test)])]
    rows.append(row("scikit-learn's EM", None, [
        GaussianMixture(n_components, max_iter=200, random_state=seed).fit(train).score(test) for seed in seeds
    ]))  # fmt: skip
    ordinary = BayesianGaussianMixture(n_components, privacy=PrivacyPlan.non_private(n_steps=2 * n_steps)).fit(train)
    rows.append(row("vips, not private", None, [ordinary.score(test)]))
    for epsilon in EPSILONS:
        ours = [fitted(BayesianGaussianMixture, n_components, epsilon, n_steps, seed, train) for seed in seeds]
        rows.append(row("vips", epsilon, [model.score(test) for model in ours]))
        rows[-1]["components with records"] = float(np.mean([model.n_components_effective_ for model in ours]))
        for steps in DP_EM_STEPS:
            steps = min(steps, n_steps)
            scores = [fitted(DPEM, n_components, epsilon, steps, seed, train).score(test) for seed in seeds]
            rows.append(row(f"DP-EM, {steps} steps", epsilon, scores))
    print(text := as_text(rows))
    if folder is not None:
        write_json(folder / "results.json", rows)
        write_text(folder / "results.md", text)
        picture(folder / "components.png")


def picture(path: Path) -> None:
    """Private components of generated records, ε = 1, drawn over the records. Nothing without matplotlib."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        return
    rng = np.random.default_rng(0)
    kind = rng.choice(3, 20_000, p=[0.5, 0.3, 0.2])
    X = np.array([[0.0, 0.4], [-0.4, -0.3], [0.5, -0.2]])[kind] + 0.08 * rng.normal(size=(20_000, 2))
    plan = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-6, sampling_rate=1.0, n_steps=60)
    ax = BayesianGaussianMixture(3, max_norm=1.0, privacy=plan).fit(X).plot_components(X=X[:3000])
    ax.figure.savefig(path, dpi=120)
    plt.close(ax.figure)


def coefficients(images: np.ndarray) -> np.ndarray:
    """Low-frequency coefficients of images with values in [0, 1], shape (n_images, 16)."""
    transformed = dctn(images, axes=(1, 2), norm="ortho")[:, :4, :4]
    return np.ascontiguousarray(transformed.reshape(len(images), -1))


def fitted(kind, n_components: int, epsilon: float, n_steps: int, seed: int, records: np.ndarray):
    plan = PrivacyPlan.from_epsilon(epsilon=epsilon, delta=DELTA, sampling_rate=1.0, n_steps=n_steps)
    return kind(n_components, max_norm=NORM, privacy=plan, random_state=seed).fit(records)


def row(method: str, epsilon: float | None, scores: list[float]) -> dict:
    return {"method": method, "epsilon": epsilon, "log density": float(np.mean(scores)), "of each fit": scores}


def as_text(rows: list[dict]) -> str:
    lines = ["| method | ε | log density | of each fit | components with records |", "| --- | --- | --- | --- | --- |"]
    for fit in rows:
        epsilon = "" if fit["epsilon"] is None else f"{fit['epsilon']:g}"
        n = f"{fit['components with records']:.1f}" if "components with records" in fit else ""
        scores = ", ".join(f"{score:.2f}" for score in fit["of each fit"])
        lines.append(f"| {fit['method']} | {epsilon} | {fit['log density']:.2f} | {scores} | {n} |")
    return "\n".join(lines) + "\n"

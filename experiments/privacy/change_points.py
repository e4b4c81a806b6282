"""``python -m experiments change_points``: when did it change, and which of many tests are discoveries?

**Change points** (Cummings, Krehbiel, Mei, Tuo and Zhang, 2018, Algorithm 1, as in the Bernoulli panels of their figure 1): of
200 observations the first 100 have probability p₀, the others p₁; P(|k̃ - 100| > a) against a. The estimate is the largest
log-likelihood ratio with noise. One observation changes each ratio by at most A = |log p₁(1-p₀) / p₀(1-p₁)|. Theirs adds
Laplace noise of scale 2A/ε; ``report noisy max`` of OpenDP (permute and flip, here as exponential noise of the same scale,
which is the same mechanism) has the same ε.

**Online tests** (PAPRIKA: Zhang, Kamath and Cummings, 2021): 200 hypotheses one after the other about 10,000 people, each that
a yes-or-no answer has probability 1/2 against more; 20 % have 0.52. Rejections must have a false discovery rate below 0.2. With
sparse vector: a noisy log p-value against a noisy level, up to 10 rejections.

Two things differ from the lecture notes, which leave them open. (1) Their candidacies, by which SAFFRON sets later levels, are
bits of the data without noise. Here levels follow LORD++ (Ramdas et al., 2017), a function of released rejections alone: the
whole is ε-differentially private, δ = 0. (2) Noise can push a p-value below its level. Levels are lower by log E[e^noise]: a
null hypothesis is then rejected with probability at most α_t, as without noise, which keeps the (marginal) rate.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import bdtrc, zeta

from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text

N, CHANGE, CHANGES = 200, 100, {"large": (0.2, 0.8), "small": (0.4, 0.6)}
EPSILONS = (0.1, 0.5, 1.0)
PEOPLE, HYPOTHESES, SHARE, ALTERNATIVE, RATE, MOST = 10_000, 200, 0.2, 0.52, 0.2, 10
EPSILONS_OF_TESTS = (2.0, 5.0, 10.0, 20.0)
LEAST = 1e-7  # p-values below count as this


def main(arguments: list[str]) -> None:
    parser = parser_of("experiments change_points", __doc__)
    options = parser.parse_args(arguments)
    folder = folder_of("change_points", options)
    n_runs = 200 if options.quick else 10_000
    rng = np.random.default_rng(0)
    rows = change_points(n_runs, rng)
    tests = online_tests(n_runs // 20, rng)
    text = _text(rows, tests)
    print(text)
    if folder is not None:
        write_json(folder / "results.json", {"change points": rows, "online tests": tests})
        write_text(folder / "results.md", text)


# -- change points ------------------------------------------------------------------------------------------------


def change_points(n_runs: int, rng: np.random.Generator) -> list[dict]:
    """P(|k̃ - k*| > a) of every method, for a = 0, 5, …, 50."""
    rows = []
    for size, (before, after) in CHANGES.items():
        likely = np.log([(1 - after) / (1 - before), after / before])
        sensitivity = float(likely[1] - likely[0])
        x = np.concatenate([rng.random((n_runs, CHANGE)) < before, rng.random((n_runs, N - CHANGE)) < after], axis=1)
        ratios = np.cumsum(likely[x.astype(int)][:, ::-1], axis=1)[:, ::-1]  # of "the change is at k", k = 1 … N
        rows.append(_errors(size, "no noise", math.inf, ratios))
        for epsilon in EPSILONS:
            scale = 2.0 * sensitivity / epsilon
            for method, draw in (("Laplace noise, as published", rng.laplace), ("permute and flip", rng.exponential)):
                rows.append(_errors(size, method, epsilon, ratios + draw(scale=scale, size=ratios.shape)))
    return rows


def _errors(size: str, method: str, epsilon: float, ratios: np.ndarray) -> dict:
    away = np.abs(ratios.argmax(axis=1) - CHANGE)
    shares = {a: float(np.mean(away > a)) for a in range(0, 55, 5)}
    return {"change": size, "method": method, "epsilon": epsilon, "further than": shares}


# -- online tests -------------------------------------------------------------------------------------------------


def online_tests(n_runs: int, rng: np.random.Generator) -> list[dict]:
    """Average false discovery proportion, power and number of rejections."""
    is_real = rng.random((n_runs, HYPOTHESES)) < SHARE
    yes = rng.binomial(PEOPLE, np.where(is_real, ALTERNATIVE, 0.5))
    logs = np.log(np.maximum(bdtrc(yes - 1, PEOPLE, 0.5), LEAST))
    rows = []
    for epsilon in (math.inf, *EPSILONS_OF_TESTS):
        rejected = np.array([reject(log, epsilon, rng) for log in logs])
        false = (rejected & ~is_real).sum(axis=1) / np.maximum(rejected.sum(axis=1), 1)
        rows.append({
            "epsilon": epsilon, "fdr": float(false.mean()),
            "power": float(((rejected & is_real).sum(axis=1) / np.maximum(is_real.sum(axis=1), 1)).mean()),
            "rejections": float(rejected.sum(axis=1).mean()),
        })  # fmt: skip
    return rows


def sensitivity_of_log_p() -> float:
    """Largest change of log max(p, LEAST) when one answer changes."""
    p = np.maximum(bdtrc(np.arange(-1, PEOPLE), PEOPLE, 0.5), LEAST)  # P(at least 0, 1, … yes)
    return float(-np.diff(np.log(p)).min())


def reject(logs: np.ndarray, epsilon: float, rng: np.random.Generator) -> np.ndarray:
    """Which hypotheses are rejected, by LORD++ with sparse vector; at most ``MOST``, with ε = ∞ any number."""
    scale = 0.0 if epsilon == math.inf else 2.0 * sensitivity_of_log_p() * MOST / epsilon
    shift = correction(scale)
    noise = rng.laplace(size=len(logs)) * 2.0 * scale
    of_level, rejections = rng.laplace() * scale, []
    for t, log in enumerate(logs, start=1):
        if epsilon != math.inf and len(rejections) == MOST:
            break
        if log + noise[t - 1] < math.log(level(t, rejections)) - shift + of_level:
            rejections.append(t)
            of_level = rng.laplace() * scale
    is_rejected = np.zeros(len(logs), bool)
    is_rejected[np.array(rejections, int) - 1] = True
    return is_rejected


def correction(scale: float) -> float:
    """log E[e^noise] of both Laplace draws; for larger noise the quantile that one draw in a thousand passes."""
    if 2.0 * scale < 0.95:
        return -math.log1p(-(scale**2)) - math.log1p(-((2.0 * scale) ** 2))
    return 3.0 * scale * math.log(1000.0)


def level(t: int, rejections: list[int]) -> float:
    """α_t of LORD++ with wealth RATE/2, γ_j proportional to j^-1.6."""

    def gamma(j: int) -> float:
        return j**-1.6 / zeta(1.6)

    wealth = RATE / 2.0
    total = gamma(t) * wealth
    if rejections:
        total += (RATE - wealth) * gamma(t - rejections[0])
        total += RATE * sum(gamma(t - r) for r in rejections[1:])
    return total


def _text(rows: list[dict], tests: list[dict]) -> str:
    columns = list(rows[0]["further than"])
    lines = [
        "| change | method | ε | " + " | ".join(f"> {a}" for a in columns) + " |",
        "| --- | --- | --- | " + " | ".join("---" for _ in columns) + " |",
    ]
    for row in rows:
        cells = " | ".join(f"{row['further than'][a]:.2f}" for a in columns)
        lines.append(f"| {row['change']} | {row['method']} | {_shown(row['epsilon'])} | {cells} |")
    lines += ["", "| ε | false discovery rate | power | rejections |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {_shown(row['epsilon'])} | {row['fdr']:.3f} | {row['power']:.2f} | {row['rejections']:.1f} |"
        for row in tests
    ]
    return "\n".join(lines) + "\n"


def _shown(epsilon: float) -> str:
    return "∞" if epsilon == math.inf else f"{epsilon:g}"

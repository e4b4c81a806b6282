"""Pictures that the pages show without their code: a function for each, which takes the names of its page."""

from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm

from vips import BayesianLogisticRegression, PrivacyPlan, StreamPlan


def beliefs(page: SimpleNamespace) -> None:
    figure, axes = plt.subplots(figsize=(6.0, 3.6), layout="constrained")
    before = np.linspace(0.001, 0.999, 200)
    for epsilon in (0.1, 0.5, 1, 2, 4):
        after = [100 * page.belief_after(belief, epsilon) for belief in before]
        axes.plot(100 * before, after, label=f"ε = {epsilon:g}")
    axes.plot([0, 100], [0, 100], ":", color="0.6", label="nothing is learnt")
    axes.set(xlabel="belief before the release, %", ylabel="largest belief after it, %", aspect="equal")
    figure.legend(frameon=False, loc="outside right center")


def budget_year(page: SimpleNamespace) -> None:
    _, axes = plt.subplots(figsize=(6.0, 3.2), layout="constrained")
    axes.step(range(len(page.account)), list(page.account.values()), where="mid", linewidth=2)
    axes.axhline(page.ledger.epsilon, linestyle=":", color="0.5")
    axes.annotate("the budget", (0, page.ledger.epsilon), xytext=(0, -14), textcoords="offset points", color="0.5")
    axes.set(xticks=range(len(page.account)), ylabel="total ε", ylim=(0, 4.4))
    axes.set_xticklabels(page.account)


def causes(page: SimpleNamespace) -> None:
    figure, axes = plt.subplots(figsize=(6.5, 2.6), layout="constrained")
    weights = page.model.components_
    largest = np.abs(weights).max()
    image = axes.imshow(weights, cmap="RdBu_r", vmin=-largest, vmax=largest, aspect="auto")
    axes.set(yticks=range(3), yticklabels=["cause 1", "cause 2", "cause 3"], xticks=range(12))
    axes.set_xticklabels(page.names, rotation=40, ha="right")
    figure.colorbar(image, label="weight")


def first_fit(page: SimpleNamespace) -> None:
    _, axes = plt.subplots(figsize=(5.5, 3.0), layout="constrained")
    names = {"age": "ten years of age"} | {f"ward: {ward} against A": f"ward {ward}\nagainst A" for ward in "BC"}
    for k, (label, table) in enumerate(page.tables.items()):
        mean, lower, upper = table.loc[list(names), ["mean", "lower", "upper"]].to_numpy().T * [10.0, 1.0, 1.0]
        places = np.arange(len(names)) + 0.2 * (1 - k)
        axes.errorbar(mean, places, xerr=[mean - lower, upper - mean], fmt="o", markersize=5, label=label)
    axes.set_yticks(range(len(names)), names.values())
    axes.axvline(0.0, color="0.6", linewidth=1, zorder=0)
    axes.set_xlabel("log-odds of readmission, with 95 % intervals")
    axes.legend(frameon=False)


def incomes(page: SimpleNamespace) -> None:
    income = page.table.shares("income")
    _, axes = plt.subplots(figsize=(6.5, 2.6), layout="constrained")
    errors = [income["share"] - income["lower"], income["upper"] - income["share"]]
    axes.bar(income.index, income["share"], yerr=errors, alpha=0.6, capsize=4)
    axes.set(xlabel="income", ylabel="share of people")
    axes.tick_params(axis="x", rotation=15)


def intervals(page: SimpleNamespace) -> None:
    """Thirty surveys of 4,000 people: intervals of the same effect, 2."""
    rng = np.random.default_rng(0)
    limits: dict[str, list[tuple[float, float]]] = {"noise ignored": [], "noise-aware": []}
    for _ in range(30):
        X = rng.uniform(-0.7, 0.7, (4_000, 2))
        y = rng.random(4_000) < 1 / (1 + np.exp(-X @ [2.0, -1.0]))
        aware = BayesianLogisticRegression(privacy=page.plan, max_norm=1.0).fit(X, y).posterior_
        exact = BayesianLogisticRegression().fit(X, y).posterior_
        for name, std in (("noise ignored", exact.std[0]), ("noise-aware", aware.std[0])):
            limits[name].append((aware.mean[0] - 1.96 * std, aware.mean[0] + 1.96 * std))
    _, panels = plt.subplots(1, 2, figsize=(7.0, 3.4), sharey=True, layout="constrained")
    for axes, (name, pairs) in zip(panels, limits.items(), strict=True):
        for k, (lower, upper) in enumerate(pairs):
            axes.plot([k, k], [lower, upper], color="C0" if lower < 2.0 < upper else "C3", linewidth=2)
        hits = sum(lower < 2.0 < upper for lower, upper in pairs)
        axes.axhline(2.0, color="0.5", linestyle=":")
        axes.set(title=f"{name}: {hits} of 30", xticks=[], ylabel="effect" if axes is panels[0] else "")


def mixed_effects(page: SimpleNamespace) -> None:
    """One patient's curve is steeper than the average over patients."""
    age, mean = np.linspace(60, 95, 50), page.table["mean"]
    deviation = page.pipeline.summary_of_effects()["median"]["deviation of intercept"]
    log_odds = mean["intercept"] + mean["age"] * age + mean["dose"] * 2.5
    average = page.pipeline.predict_proba(page.pd.DataFrame({"age": age, "dose": 2.5}))[:, 1]
    _, axes = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
    for z, name in ((-1, "less frail"), (0, "typical"), (1, "more frail")):
        axes.plot(age, 1.0 / (1.0 + np.exp(-log_odds - z * deviation)), "--", label=f"a {name} patient")
    axes.plot(age, average, "k", label="average over patients")
    axes.set(xlabel="age", ylabel="probability of a fall")
    axes.legend(fontsize="small")


def pairs(page: SimpleNamespace) -> None:
    _, axes = plt.subplots(figsize=(3.6, 3.4), layout="constrained")
    above = np.triu_indices(12, 1)
    axes.plot(page.pairs[0][above], page.pairs[1][above], "o", alpha=0.6)
    axes.plot([0, 0.35], [0, 0.35], ":", color="0.5")
    axes.set(xlabel="share with both, held-out patients", ylabel="share with both, synthetic", aspect="equal")


def sampling(_: SimpleNamespace) -> None:
    _, axes = plt.subplots(figsize=(6.0, 3.4), layout="constrained")
    rates = np.array([0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0])
    for steps in (20, 100, 500):
        plans = [PrivacyPlan(noise_multiplier=4.0, sampling_rate=rate, n_steps=steps) for rate in rates]
        axes.loglog(rates, [plan.epsilon(1e-6) for plan in plans], "o-", label=f"{steps} steps")
    axes.set(xlabel="sampling rate q", ylabel="ε at δ = 10⁻⁶")
    axes.legend(frameon=False)


def stream_noise(_: SimpleNamespace) -> None:
    _, axes = plt.subplots(figsize=(7.0, 3.2), layout="constrained")
    mechanisms = {"toeplitz": "correlated (default)", "tree": "binary tree", "independent": "independent"}
    for mechanism, meaning in mechanisms.items():
        stream = StreamPlan(epsilon=1.0, delta=1e-6, n_batches=365, mechanism=mechanism)
        axes.plot(range(1, 366), [stream.noise_std(t) for t in range(1, 366)], label=meaning)
    axes.set(xlabel="batch", ylabel="noise in the total ÷ clip norm")
    axes.legend()


def two_worlds(_: SimpleNamespace) -> None:
    sigma = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-6, sampling_rate=1.0, n_steps=1).noise_multiplier
    _, axes = plt.subplots(figsize=(6.5, 3.0), layout="constrained")
    numbers = np.linspace(280, 321, 400)
    for count, words in ((300, "without Ann: 300"), (301, "with Ann: 301")):
        density = norm.pdf(numbers, count, sigma)
        axes.plot(numbers, density, label=words)
        axes.fill_between(numbers, density, alpha=0.15)
    axes.set(xlabel="the number that is published", yticks=[])
    axes.legend(frameon=False)

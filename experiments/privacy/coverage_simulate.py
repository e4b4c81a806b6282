"""For every model of the experiment: one simulated data set, a private fit of it, and the true parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linear_sum_assignment
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from experiments.privacy import coverage_oracle as oracle
from vips import (
    BayesianGaussianMixture,
    BayesianLinearRegression,
    BayesianLogisticRegression,
    CategoricalHMM,
    DirichletMultinomial,
    FactorAnalysis,
    FactorialHMM,
    GaussianHMM,
    LatentClassAnalysis,
    LatentDirichletAllocation,
    LinearDynamicalSystem,
    MixedLatentClassAnalysis,
    PoissonHMM,
    PrivacyPlan,
    ProbabilisticPCA,
    SigmoidBeliefNetwork,
)
from vips.data import Sequences
from vips.datasets import make_lda_corpus
from vips.expfam import Draws
from vips.models.dynamics.posterior import Dynamics
from vips.models.dynamics.smoothing import samples
from vips.models.second_moments.estimates import aligned

__all__ = ["MODELS", "Model", "Simulated"]

ALPHA, N_FEATURES, N_CATEGORIES = 0.1, 5, 8
N_MANY = 400_000  # number of records for the best coefficients of a misspecified model
N_TOPICS, N_WORDS, LENGTH, WORD_PRIOR, LEAST_PROBABILITY, FOUND = 5, 100, 100, 0.1, 1e-3, 0.3
OTHER_LENGTHS, OTHER_FACTOR = (20, 60, 200), 1.5
N_VISIBLE, N_HIDDEN, SAME = 100, 2, 0.8
N_CLASSES, N_ITEMS, N_CATEGORIES, N_LEVELS, LEAST_SHARE, N_COPIES, COPIED = 3, 10, 4, 3, 0.02, 3, 0.15
N_COLUMNS = 4  # of Gaussian mixtures
N_STATES, N_SYMBOLS, LENGTHS, MAX_COUNT = 4, 12, (6, 19), 20

Interval = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Simulated:
    """True parameters, and the posteriors that estimate them.

    Parameters
    ----------
    truth : ndarray of shape (n,)
    asked : dict of str to callable
        "naive", "noise-aware" and "without privacy": functions from a level to (lower, upper) for each entry of ``truth``.
    oracle : float or None
        Mean width at 95 % of the oracle's posterior, which knows what a fit has to learn under noise.
    """

    truth: np.ndarray
    asked: dict[str, Callable[[float], Interval]]
    oracle: float | None = None


def _asked(model, baseline, chosen: Callable[[Interval], Interval]) -> dict[str, Callable[[float], Interval]]:
    posteriors = {"naive": model.last_posterior_, "noise-aware": model.posterior_, "without privacy": baseline}
    return {name: lambda level, p=p: chosen(p.interval(level)) for name, p in posteriors.items() if p is not None}


def logistic(
    n_records: int,
    plan: PrivacyPlan,
    rng: np.random.Generator,
    with_baseline: bool,
    misspecified=False,
) -> Simulated:
    """Coefficients from the prior; default clip. Misspecified: a tenth of the labels are random; the truth is the
    coefficients that many such records would give."""
    w, intercept = rng.normal(size=N_FEATURES) / np.sqrt(ALPHA), rng.normal()

    def table(n: int) -> tuple[np.ndarray, np.ndarray]:
        X = rng.normal(size=(n, N_FEATURES))
        X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
        y = rng.random(n) < expit(X @ w + intercept)
        return X, np.where(rng.random(n) < 0.1, rng.random(n) < 0.5, y) if misspecified else y

    X, y = table(n_records)
    y = y.astype(int)
    if misspecified:
        w = LogisticRegression(C=np.inf, tol=1e-8).fit(*table(N_MANY)).coef_[0]
    arguments = {"max_norm": 1.0, "prior": ALPHA}
    model = BayesianLogisticRegression(privacy=plan, **arguments).fit(X, y)
    baseline = BayesianLogisticRegression(**arguments).fit(X, y).laplace_posterior(X, y) if with_baseline else None
    asked = _asked(model, baseline, lambda bounds: tuple(side[:N_FEATURES] for side in bounds))
    known = None if misspecified else oracle.logistic_width(model, X, np.append(w, intercept))
    return Simulated(w, asked, known)


def proportions(
    n_records: int,
    plan: PrivacyPlan,
    rng: np.random.Generator,
    with_baseline: bool,
    misspecified=False,
    n_moves: int = oracle.N_MOVES,
) -> Simulated:
    """Proportions from the prior. Misspecified: they fall like powers of ½, which is improbable under the prior."""
    theta = rng.dirichlet(np.ones(N_CATEGORIES))
    if misspecified:
        theta = 0.5 ** np.arange(N_CATEGORIES)
        theta /= theta.sum()
    X = np.eye(N_CATEGORIES)[rng.choice(N_CATEGORIES, n_records, p=theta)]
    model = DirichletMultinomial(privacy=plan).fit(X)
    baseline = DirichletMultinomial().fit(X).last_posterior_ if with_baseline else None
    known = oracle.proportions_width(model, n_records, rng, n_moves) if with_baseline and not misspecified else None
    return Simulated(theta, _asked(model, baseline, lambda bounds: bounds), known)


def linear(
    n_records: int, plan: PrivacyPlan, rng: np.random.Generator, with_baseline: bool, penalty: str = "ridge"
) -> Simulated:
    """Five coefficients and an intercept from N(0, 1), targets with a deviation of ½; "ard": half of the coefficients are 0."""
    w, intercept = rng.normal(size=N_FEATURES), rng.normal()
    w = w * (rng.random(N_FEATURES) < 0.5) if penalty == "ard" else w
    X = rng.normal(size=(n_records, N_FEATURES))
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    y = X @ w + intercept + 0.5 * rng.normal(size=n_records)
    model = BayesianLinearRegression(penalty=penalty, privacy=plan, max_norm=1.0, target_range=(-6.0, 6.0)).fit(X, y)
    baseline = BayesianLinearRegression(penalty=penalty).fit(X, y).last_posterior_ if with_baseline else None
    return Simulated(w, _asked(model, baseline, lambda bounds: tuple(side[:N_FEATURES] for side in bounds)))


def principal_components(n_records: int, plan: PrivacyPlan, rng: np.random.Generator, with_baseline: bool) -> Simulated:
    """Loadings of lengths ½ and 0.3 in six columns, and the noise variance 0.02. Nothing is estimated where noise hides one."""
    loadings = np.array([[0.5], [0.3]]) * np.linalg.qr(rng.normal(size=(6, 6)))[0][:2]
    X = rng.normal(size=(n_records, 2)) @ loadings + np.sqrt(0.02) * rng.normal(size=(n_records, 6))
    model = ProbabilisticPCA(2, privacy=plan, max_norm=2.5).fit(X)
    components = model.last_posterior_.mean[:2]
    loadings *= np.where((loadings * components).sum(axis=1, keepdims=True) < 0.0, -1.0, 1.0)
    truth = np.append(loadings.ravel(), 0.02)
    if model.why_no_intervals():
        nothing = np.zeros(0)
        return Simulated(nothing, dict.fromkeys(("naive", "noise-aware"), lambda level: (nothing, nothing)))
    return Simulated(truth, _asked(model, None, lambda bounds: tuple(side.ravel()[:13] for side in bounds)))


def factors(n_records: int, plan: PrivacyPlan, rng: np.random.Generator, with_baseline: bool) -> Simulated:
    """Two factors of eight columns, random loadings and noise variances; together their variance is 0.2. Nothing is estimated
    where noise hides a factor."""
    while True:
        psi, loadings = rng.uniform(0.2, 1.0, 8), rng.normal(size=(2, 8)) * [[1.4], [0.8]]
        _, strengths, rows = np.linalg.svd(loadings / np.sqrt(psi), full_matrices=False)
        if strengths[0] > 1.2 * strengths[1]:  # else they turn into each other
            break
    truth = np.vstack([strengths[:, None] * rows * np.sqrt(psi), psi])
    scale = 0.2 / (np.square(truth[:2]).sum() + psi.sum())
    truth *= [[np.sqrt(scale)], [np.sqrt(scale)], [scale]]
    X = rng.normal(size=(n_records, 2)) @ truth[:2] + rng.normal(size=(n_records, 8)) * np.sqrt(truth[2])
    model = FactorAnalysis(2, privacy=plan, max_norm=1.6).fit(X)
    if model.why_no_intervals():
        nothing = np.zeros(0)
        return Simulated(nothing, dict.fromkeys(("naive", "noise-aware"), lambda level: (nothing, nothing)))
    truth[:2] = aligned(truth[:2], model.components_)
    return Simulated(truth.ravel(), _asked(model, None, lambda bounds: tuple(side[:3].ravel() for side in bounds)))


def topics(
    n_records: int,
    plan: PrivacyPlan,
    rng: np.random.Generator,
    with_baseline: bool,
    n_topics=N_TOPICS,
    n_words=N_WORDS,
    length=LENGTH,
    misspecified=False,
) -> Simulated:
    """Topics and shares from the prior. Estimated: words of probability above 0.001 in topics that the fit found (squared
    Hellinger distance below 0.3); default clip, which binds. Misspecified: documents of 20, 60 and 200 words, and of 1.5 times
    the α that the model states."""
    seed = int(rng.integers(2**30))
    lengths, factor = (OTHER_LENGTHS, OTHER_FACTOR) if misspecified else ((length,), 1.0)
    truth, corpora = None, []
    for length in lengths:
        corpora.append(
            make_lda_corpus(
                n_records // len(lengths), n_topics=n_topics, n_words=n_words, document_length=length,
                doc_topic_prior=factor / n_topics, topic_word_prior=WORD_PRIOR, topics=truth, random_state=seed + length,
            )
        )  # fmt: skip
        truth = corpora[0].topics
    documents = sp.vstack([corpus.counts for corpus in corpora], format="csr")
    arguments = {
        "doc_topic_prior": 1.0 / n_topics,
        "topic_word_prior": WORD_PRIOR,
        "vocabulary": n_words,
        "random_state": seed,
    }

    def fit(privacy: PrivacyPlan) -> tuple[LatentDirichletAllocation, Callable, np.ndarray]:
        model = LatentDirichletAllocation(n_topics, privacy=privacy, **arguments).fit(documents)
        distances = ((np.sqrt(truth)[:, None] - np.sqrt(model.last_posterior_.mean)) ** 2).sum(axis=2)
        rows, order = linear_sum_assignment(distances)
        asked = (truth > LEAST_PROBABILITY) & (distances[rows, order] < FOUND)[:, None]
        return model, lambda bounds: tuple(side[order][asked] for side in bounds), truth[asked]

    model, chosen, values = fit(plan)
    if model.why_no_intervals():
        return Simulated(np.zeros(0), {})
    asked = _asked(model, None, chosen)
    if with_baseline:
        plain, its, probabilities = fit(PrivacyPlan.non_private(sampling_rate=1.0, n_steps=60))
        if len(probabilities) == len(values):  # otherwise it found other topics
            asked["without privacy"] = lambda level: its(plain.last_posterior_.interval(level))
    return Simulated(values, asked)


def belief_network(n_records: int, plan: PrivacyPlan, rng: np.random.Generator, with_baseline: bool) -> Simulated:
    """Biases of visible and hidden units, for weights from N(0, 2²) and biases from N(0, 1); default clip, which binds.
    Estimated: networks that have intervals, which hold nothing where z̄ correlates with the true z by less than 0.8."""
    weights = rng.normal(0.0, 2.0, (N_VISIBLE, N_HIDDEN))
    c, b = rng.normal(size=N_VISIBLE), rng.normal(size=N_HIDDEN)
    z = rng.random((n_records, N_HIDDEN)) < expit(b)
    X = rng.random((n_records, N_VISIBLE)) < expit(z @ weights.T + c)
    arguments = {"penalty": "normal", "random_state": int(rng.integers(2**31))}
    model = SigmoidBeliefNetwork(N_HIDDEN, privacy=plan, **arguments).fit(X)
    truths = _as_found(weights, c, b, z, model.transform(X))
    if model.why_no_intervals():
        return Simulated(np.empty(0), {})
    asked = _asked(model, None, _biases)
    if truths is None:  # intervals of another network hold nothing
        return Simulated(np.full(N_VISIBLE + N_HIDDEN, np.nan), asked)
    truth = np.append(truths[1], truths[2])
    if with_baseline:
        plan = PrivacyPlan.non_private(sampling_rate=1.0, n_steps=60)
        plain = SigmoidBeliefNetwork(N_HIDDEN, privacy=plan, **arguments).fit(X)
        its = _as_found(weights, c, b, z, plain.transform(X))
        if its is not None and np.array_equal(truth, np.append(its[1], its[2])):  # otherwise units have other labels
            asked["without privacy"] = lambda level: _biases(plain.last_posterior_.interval(level))
    return Simulated(truth, asked, oracle.network_width(model, *truths))


def _biases(bounds: dict[str, Interval]) -> Interval:
    return tuple(np.concatenate([bounds["visible_bias"][side], bounds["hidden_bias"][side]]) for side in (0, 1))


def latent_classes(
    n_records: int,
    plan: PrivacyPlan,
    rng: np.random.Generator,
    with_baseline: bool,
    misspecified=False,
    rows: str | None = None,
) -> Simulated:
    """Shares and answers of three classes, without those below 0.02; no truth where intervals are refused. Misspecified: some
    answers copy those of another column; the truth is what many such records give."""
    shares, tables = rng.dirichlet(np.full(N_CLASSES, 8.0)), rng.dirichlet(np.ones(N_LEVELS), (N_CLASSES, N_ITEMS))
    ids = None if rows is None else _ids(n_records, rng)

    def table(n: int) -> np.ndarray:
        classes = rng.choice(N_CLASSES, n, p=shares) if rows is None else _members(shares, ids, rows, rng)
        codes = (rng.random((len(classes), N_ITEMS, 1)) >= np.cumsum(tables, axis=-1)[classes]).sum(axis=-1)
        if misspecified:
            copied = rng.random((n, N_COPIES)) < COPIED
            codes[:, :N_COPIES] = np.where(copied, codes[:, N_COPIES : 2 * N_COPIES], codes[:, :N_COPIES])
        return codes

    settings = {"categories": [N_LEVELS] * N_ITEMS, "random_state": 0}
    codes = table(n_records) if rows != "the same" else table(n_records)[ids]
    model = LatentClassAnalysis(N_CLASSES, privacy=plan, **settings).fit(codes, groups=ids)
    if model.why_no_intervals():
        return Simulated(np.empty(0), {})
    if misspecified:
        best = LatentClassAnalysis(N_CLASSES, **settings | {"random_state": 1}).fit(table(N_MANY // 4)).last_posterior_
        shares, tables = best.weights.mean, best.profiles.reshape(tables.shape)
    with_baseline = with_baseline and rows is None
    baseline = LatentClassAnalysis(N_CLASSES, **settings).fit(codes).last_posterior_ if with_baseline else None
    truth, flat = np.concatenate([shares, tables.ravel()]), tables.reshape(N_CLASSES, -1)
    posteriors = {
        "naive": model.last_posterior_, "noise-aware": model.posterior_, "without privacy": baseline,
    }  # fmt: skip
    asked = {name: _of_classes(p, flat, truth > LEAST_SHARE) for name, p in posteriors.items() if p is not None}
    return Simulated(truth[truth > LEAST_SHARE], asked)


def _ids(n: int, rng: np.random.Generator) -> np.ndarray:
    """Whose each row is: persons have 1 to 30 rows, 3 in the median."""
    return np.repeat(np.arange(n), np.clip(np.ceil(rng.lognormal(0.8, 1.0, n)), 1, 30).astype(int))


def _members(shares: np.ndarray, ids: np.ndarray, rows: str, rng: np.random.Generator) -> np.ndarray:
    """Components of rows that are "independent", or "similar", so that most of a person are from one; or those of persons,
    whose rows are "the same"."""
    n = ids[-1] + 1
    if rows == "the same":
        return rng.choice(len(shares), n, p=shares)
    of_persons = rng.dirichlet(0.5 * shares, n) if rows == "similar" else np.broadcast_to(shares, (n, len(shares)))
    return _levels(of_persons[ids], rng)


def _of_classes(posterior, tables: np.ndarray, kept: np.ndarray) -> Callable[[float], Interval]:
    """Intervals of shares and answers, in the order of the true classes."""
    order = linear_sum_assignment(np.abs(tables[:, None] - posterior.profiles).sum(axis=-1))[1]

    def interval(level: float) -> Interval:
        limits = [part.interval(level) for part in (posterior.weights, *posterior.columns["answers"])]
        sides = ((shares[order], np.hstack(answers)[order]) for shares, *answers in zip(*limits, strict=True))
        return tuple(np.concatenate([shares, answers.ravel()])[kept] for shares, answers in sides)

    return interval


def mixed_classes(n_records: int, plan: PrivacyPlan, rng: np.random.Generator, with_baseline: bool) -> Simulated:
    """Means of two numbers and of two counts in three classes of a table that holds some categories, too; a tenth of the cells
    is missing. No truth where intervals are refused."""
    shares, tables = rng.dirichlet(np.full(N_CLASSES, 8.0)), rng.dirichlet(np.ones(N_LEVELS), (N_CLASSES, N_CATEGORIES))
    means = np.hstack([rng.uniform(30.0, 70.0, (N_CLASSES, 2)), rng.gamma(2.0, 2.0, (N_CLASSES, 2))])
    deviations = rng.uniform(4.0, 10.0, (N_CLASSES, 2))
    classes = rng.choice(N_CLASSES, n_records, p=shares)
    numbers = means[classes, :2] + deviations[classes] * rng.standard_normal((n_records, 2))
    codes = (rng.random((n_records, N_CATEGORIES, 1)) >= np.cumsum(tables, axis=-1)[classes]).sum(axis=-1)
    table = np.hstack([numbers, rng.poisson(means[classes, 2:]), codes])
    table[rng.random(table.shape) < 0.1] = np.nan
    columns = [(0.0, 100.0)] * 2 + [range(41)] * 2 + [N_LEVELS] * N_CATEGORIES
    settings = {"columns": columns, "random_state": 0}
    model = MixedLatentClassAnalysis(N_CLASSES, privacy=plan, **settings).fit(table)
    if model.why_no_intervals():
        return Simulated(np.empty(0), {})
    posteriors = {"naive": model.last_posterior_, "noise-aware": model.posterior_}
    if with_baseline:
        posteriors["without privacy"] = MixedLatentClassAnalysis(N_CLASSES, **settings).fit(table).last_posterior_
    return Simulated(means.ravel(), {name: _of_mixed(part, means) for name, part in posteriors.items()})


def _of_mixed(posterior, means: np.ndarray) -> Callable[[float], Interval]:
    """Intervals of the means, in the order of the true classes."""
    centre, scale = posterior.frame.centre[:2], posterior.frame.scale[:2]
    centres = np.hstack([centre + scale * posterior.columns["numbers"].mean, posterior.columns["counts"].mean])
    order = linear_sum_assignment((np.square(means[:, None] - centres) / means.var(axis=0)).sum(axis=-1))[1]

    def interval(level: float) -> Interval:
        numbers, counts = posterior.columns["numbers"].means, posterior.columns["counts"]
        sides = zip(numbers.interval(level), counts.interval(level), strict=True)
        return tuple(np.hstack([centre + scale * numbers, counts])[order].ravel() for numbers, counts in sides)

    return interval


def gaussian_mixture(
    n_records: int, plan: PrivacyPlan, rng: np.random.Generator, with_baseline: bool, rows: str | None = None
) -> Simulated:
    """Means of three components in four columns; no truth where intervals are refused."""
    shares, means = rng.dirichlet(np.full(N_CLASSES, 8.0)), 0.9 * rng.normal(size=(N_CLASSES, N_COLUMNS))
    factors = 0.2 * rng.normal(size=(N_CLASSES, N_COLUMNS, 2 * N_COLUMNS))
    ids = None if rows is None else _ids(n_records, rng)
    members = rng.choice(N_CLASSES, n_records, p=shares) if ids is None else _members(shares, ids, rows, rng)
    X = means[members] + np.einsum("nij,nj->ni", factors[members], rng.normal(size=(len(members), 2 * N_COLUMNS)))
    X = X[ids] if rows == "the same" else X
    settings = {"max_norm": 4.0, "random_state": 0}
    model = BayesianGaussianMixture(N_CLASSES, privacy=plan, **settings).fit(X, groups=ids)
    if model.why_no_intervals():
        return Simulated(np.empty(0), {})
    asked = {"naive": model.last_posterior_.means, "noise-aware": model.posterior_.draws["means"]}
    if with_baseline and rows is None:
        asked["without privacy"] = BayesianGaussianMixture(N_CLASSES, **settings).fit(X).last_posterior_.means
    return Simulated(means.ravel(), {name: _of_means(part, means) for name, part in asked.items()})


def _of_means(posterior, means: np.ndarray) -> Callable[[float], Interval]:
    """Intervals in the order of the true components."""
    order = linear_sum_assignment(np.square(means[:, None] - posterior.mean).sum(axis=-1))[1]
    return lambda level: tuple(side[order].ravel() for side in posterior.interval(level))


def hidden_states(
    n_records: int,
    plan: PrivacyPlan,
    rng: np.random.Generator,
    with_baseline: bool,
    seen: str = "symbols",
    rows: str | None = None,
) -> Simulated:
    """First states, moves and what is seen in four states (three of vectors and counts), without probabilities below 0.02; no
    truth where intervals are refused. Sequences have 6 to 18 steps; similar ones of a person have the same states."""
    K = N_STATES if seen == "symbols" else 3
    moves = np.stack([rng.dirichlet(1.0 + 5.0 * (np.arange(K) == k)) for k in range(K)])
    start = rng.dirichlet(np.full(K, 4.0))
    ids = None if rows is None else _ids(n_records, rng)
    n_drawn = len(ids) if rows == "independent" else n_records
    offsets = np.concatenate([[0], np.cumsum(rng.integers(*LENGTHS, n_drawn))])
    states = _chain(start, moves, offsets, rng)
    if rows == "similar":
        of_rows = Sequences(states[:, None], offsets)[ids]
        states, offsets = of_rows.values[:, 0], of_rows.offsets
    settings: dict = {"max_length": 20, "typical_length": 18, "random_state": 0}
    if seen == "symbols":
        emissions = rng.dirichlet(np.full(N_SYMBOLS, 0.3), K)
        values = _levels(emissions[states], rng)[:, None]
        kind, settings = CategoricalHMM, settings | {"n_symbols": N_SYMBOLS}
    elif seen == "counts":
        emissions = rng.gamma(2.0, 2.0, (K, 2))
        values = rng.poisson(emissions[states])
        kind, settings = PoissonHMM, settings | {"max_count": MAX_COUNT, "n_features": 2}
    else:
        emissions = rng.normal(size=(K, 2))
        values = emissions[states] + 0.4 * rng.normal(size=(len(states), 2))
        kind, settings = GaussianHMM, settings | {"max_norm": 4.0, "n_features": 2}
    sequences = Sequences(values, offsets)
    sequences = sequences[ids] if rows == "the same" else sequences
    model = kind(K, privacy=plan, **settings).fit(sequences, groups=ids)
    if model.why_no_intervals():
        return Simulated(np.empty(0), {})
    posteriors = {
        "naive": _of_chain(model.last_posterior_),
        "noise-aware": _of_chain(model.posterior_) | model.posterior_.draws,
    }
    if with_baseline and rows is None:
        plain = PrivacyPlan.non_private(sampling_rate=1.0, n_steps=60)
        posteriors["without privacy"] = _of_chain(kind(K, privacy=plain, **settings).fit(sequences).last_posterior_)
    truth = np.concatenate([start, moves.ravel(), emissions.ravel()])
    kept = np.concatenate([truth[: K + K * K] > LEAST_SHARE, (emissions > LEAST_SHARE).ravel() | (seen != "symbols")])
    return Simulated(truth[kept], {name: _of_states(p, emissions, kept) for name, p in posteriors.items()})


def chains(n_records: int, plan: PrivacyPlan, rng: np.random.Generator, with_baseline: bool) -> Simulated:
    """First states and moves of two chains of two states, without probabilities below 0.02, and how far their states are apart
    in three columns; no truth where intervals are refused. Sequences have 6 to 18 steps."""
    start, moves = rng.dirichlet(np.full(2, 4.0), 2), np.empty((2, 2, 2))
    for m, k in np.ndindex(2, 2):
        moves[m, k] = rng.dirichlet(1.0 + 5.0 * (np.arange(2) == k))
    effects = rng.normal(size=(2, 2, 3))
    offsets = np.concatenate([[0], np.cumsum(rng.integers(*LENGTHS, n_records))])
    states = [_chain(*chain, offsets, rng) for chain in zip(start, moves, strict=True)]
    values = effects[0, states[0]] + effects[1, states[1]] + 0.4 * rng.normal(size=(offsets[-1], 3))
    settings = {"max_norm": 5.0, "n_features": 3, "max_length": 20, "typical_length": 18, "random_state": 0}
    model = FactorialHMM(2, 2, privacy=plan, **settings).fit(Sequences(values, offsets))
    if model.why_no_intervals():
        return Simulated(np.empty(0), {})
    draws = model.posterior_.draws
    asked = {"naive": _of_factorial(model.last_posterior_, rng)}
    asked["noise-aware"] = draws["start"], draws["moves"], Draws(np.diff(draws["means"].draws, axis=2)[:, :, 0])
    if with_baseline:
        plain = FactorialHMM(2, 2, privacy=PrivacyPlan.non_private(sampling_rate=1.0, n_steps=60), **settings)
        asked["without privacy"] = _of_factorial(plain.fit(Sequences(values, offsets)).last_posterior_, rng)
    apart = effects[:, 1] - effects[:, 0]
    truth = np.concatenate([start.ravel(), moves.ravel(), apart.ravel()])
    kept = np.append(truth[:12] > LEAST_SHARE, np.full(apart.size, True))
    return Simulated(truth[kept], {name: _of_chains(parts, apart, kept) for name, parts in asked.items()})


def _of_factorial(posterior, rng: np.random.Generator) -> tuple:
    """Its first states, moves, and how far both states of each chain are apart."""
    contrasts = np.kron(np.eye(2), [[-1.0, 1.0]])
    back = np.linalg.inv(posterior.whitening)
    variances = np.diagonal(back @ (posterior.scale / posterior.dof) @ back.T)
    stds = np.sqrt(np.outer(np.diagonal(contrasts @ posterior.spread @ contrasts.T), variances))
    apart = contrasts @ (back @ posterior.mean).T
    return posterior.start, posterior.moves, Draws(apart + stds * rng.standard_normal((2_000, *apart.shape)))


def _of_chains(parts: tuple, apart: np.ndarray, kept: np.ndarray) -> Callable[[float], Interval]:
    """Intervals in the order of the true chains and of their states."""
    signed = apart @ parts[-1].mean.T
    order = linear_sum_assignment(
        np.square(apart).sum(axis=1)[:, None] - 2.0 * np.abs(signed) + np.square(parts[-1].mean).sum(1)
    )[1]
    turned = signed[np.arange(2), order] < 0.0

    def interval(level: float) -> Interval:
        limits = [np.stack(part.interval(level))[:, order] for part in parts]
        start, moves, apart = (
            np.where(turned.reshape(-1, *[1] * (of.ndim - 2)), other, of)
            for of, other in zip(
                limits, (limits[0][..., ::-1], limits[1][..., ::-1, ::-1], -limits[2][::-1]), strict=True
            )
        )
        return tuple(np.concatenate([part[side].ravel() for part in (start, moves, apart)])[kept] for side in (0, 1))

    return interval


def series(n_records: int, plan: PrivacyPlan, rng: np.random.Generator, with_baseline: bool) -> Simulated:
    """What two states that turn explain of four columns, and the noise beside it; no truth where intervals are refused. Series
    have 8 to 31 steps."""
    angle, radius = rng.uniform(0.2, 1.0), rng.uniform(0.6, 0.95)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    of = Dynamics(
        radius * turn, (1.0 - radius**2) * np.eye(2), rng.normal(size=(4, 2)) * 0.7, 0.3 * rng.normal(size=4),
        rng.uniform(0.2, 0.6, 4), np.zeros(2), np.eye(2),
    )  # fmt: skip
    sequences, _ = samples(of, rng.integers(8, 32, n_records), rng)
    settings = {"max_norm": 5.0, "typical_length": 20}
    model = LinearDynamicalSystem(2, privacy=plan, **settings).fit(sequences)
    if model.why_no_intervals():
        return Simulated(np.empty(0), {})
    draws = model.posterior_.draws
    asked = {"noise-aware": lambda level: _of_system(draws, level)}
    return Simulated(np.concatenate([of.explained().ravel(), of.offset]), asked)


def _of_system(draws: dict, level: float) -> Interval:
    both = (draws[name].interval(level) for name in ("explained", "offset"))
    return tuple(np.concatenate([side.ravel() for side in sides]) for sides in zip(*both, strict=True))


def _chain(start: np.ndarray, moves: np.ndarray, offsets: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """States of all steps."""
    states, lengths = np.empty(offsets[-1], int), np.diff(offsets)
    for t in range(lengths.max()):
        at = offsets[:-1][lengths > t] + t
        states[at] = _levels(np.broadcast_to(start, (len(at), len(start))) if t == 0 else moves[states[at - 1]], rng)
    return states


def _levels(p: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A draw of each row of probabilities."""
    return np.minimum((rng.random((len(p), 1)) >= np.cumsum(p, axis=1)).sum(axis=1), p.shape[1] - 1)


def _of_chain(posterior) -> dict:
    """Its parts, under the names of draws."""
    parts = {"start": posterior.start, "moves": posterior.moves}
    if hasattr(posterior, "gaussians"):
        return parts | {"means": posterior.gaussians.means}
    if hasattr(posterior, "columns"):
        return parts | {"rates": posterior.columns["counts"]}
    return parts | {"emissions": posterior.emissions}


def _of_states(parts: dict, emissions: np.ndarray, kept: np.ndarray) -> Callable[[float], Interval]:
    """Intervals in the order of the true states."""
    seen = next(parts[name] for name in ("emissions", "means", "rates") if name in parts)
    order = linear_sum_assignment(np.abs(emissions[:, None] - seen.mean).sum(axis=-1))[1]

    def interval(level: float) -> Interval:
        limits = [part.interval(level) for part in (parts["start"], parts["moves"], seen)]
        sides = ((s[order], m[np.ix_(order, order)], e[order]) for s, m, e in zip(*limits, strict=True))
        return tuple(np.concatenate([part.ravel() for part in side])[kept] for side in sides)

    return interval


def _as_found(weights, c, b, z, inferred) -> tuple[np.ndarray, ...] | None:
    """Weights, biases and hidden units of the same network, with the order of its units and their labels 0 and 1 as the fit
    found them; None if it did not find all."""
    with np.errstate(all="ignore"):
        correlation = np.nan_to_num(np.corrcoef(inferred.T, z.T)[:N_HIDDEN, N_HIDDEN:])
    rows, order = linear_sum_assignment(-np.abs(correlation))
    if np.abs(correlation[rows, order]).min() < SAME:
        return None
    turned = correlation[rows, order] < 0.0
    ordered, sign = weights[:, order], np.where(turned, -1.0, 1.0)
    return ordered * sign, c + ordered[:, turned].sum(axis=1), b[order] * sign, z[:, order] != turned


@dataclass(frozen=True)
class Model:
    """A model of the experiment, with its cells.

    Parameters
    ----------
    simulate : callable
    n_records : tuple of int
    epsilons : tuple of float
    plan : dict
        Sampling rate and number of steps.
    fits : float
        Number of fits in a cell, in units of the option ``--fits``.
    arguments : dict
        Arguments of ``simulate``.
    quick : dict
        Fields that a quick run replaces.
    """

    simulate: Callable[..., Simulated]
    n_records: tuple[int, ...]
    epsilons: tuple[float, ...]
    plan: dict
    fits: float = 1.0
    arguments: dict = field(default_factory=dict)
    quick: dict = field(default_factory=dict)

    @property
    def is_misspecified(self) -> bool:
        """Whether data come from another distribution than the model's."""
        return self.arguments.get("misspecified", False)


_SIZES, _EPSILONS = (500, 5_000, 50_000), (0.1, 0.5, 1.0, 4.0)
_FULL = {"sampling_rate": 1.0, "n_steps": 20}
MODELS = {
    "logistic regression": Model(logistic, _SIZES, _EPSILONS, _FULL),
    "logistic regression, misspecified": Model(
        logistic, (5_000,), _EPSILONS, _FULL, arguments={"misspecified": True}
    ),
    "proportions": Model(
        proportions, _SIZES, _EPSILONS, {"sampling_rate": 1.0, "n_steps": 1}, fits=10.0,
        quick={"arguments": {"n_moves": 500}},
    ),
    "proportions, misspecified": Model(
        proportions, (5_000,), _EPSILONS, {"sampling_rate": 1.0, "n_steps": 1}, 10.0, {"misspecified": True}
    ),
    "linear regression": Model(linear, (1_000, 20_000), _EPSILONS[1:], {"sampling_rate": 1.0, "n_steps": 16}, fits=5.0),
    "linear regression, relevance": Model(
        linear, (1_000, 20_000), _EPSILONS[1:], {"sampling_rate": 1.0, "n_steps": 16}, 5.0, {"penalty": "ard"}
    ),
    "principal components": Model(
        principal_components, (1_000, 20_000), _EPSILONS[1:], {"sampling_rate": 1.0, "n_steps": 1}
    ),
    "factors": Model(factors, (2_000, 20_000), _EPSILONS[1:], {"sampling_rate": 1.0, "n_steps": 1}),
    "words of topics": Model(
        topics, (5_000, 20_000), _EPSILONS[1:], {"sampling_rate": 0.5, "n_steps": 40}, fits=0.1, quick={"plan": _FULL}
    ),
    "words of topics, misspecified": Model(
        topics, (5_000, 20_000), _EPSILONS[2:], {"sampling_rate": 0.5, "n_steps": 40}, 0.1,
        {"misspecified": True},
    ),
    "words of ten topics": Model(
        topics, (20_000,), _EPSILONS[2:], {"sampling_rate": 1.0, "n_steps": 20}, 0.1,
        {"n_topics": 10, "n_words": 2_000, "length": 60},
        {"plan": _FULL, "arguments": {"n_topics": 3, "n_words": 200, "length": 60}},
    ),
    "biases of a belief network": Model(
        belief_network, (5_000, 20_000), (1.0, 4.0), {"sampling_rate": 1.0, "n_steps": 20}, fits=0.4
    ),
    "latent classes": Model(latent_classes, (5_000, 20_000), (1.0, 4.0), _FULL, fits=0.4),
    "means of mixed classes": Model(mixed_classes, (5_000, 20_000), (1.0, 4.0), _FULL, fits=0.4),
    "means of a Gaussian mixture": Model(gaussian_mixture, (5_000, 20_000), (1.0, 4.0), _FULL, fits=0.4),
    "states of a categorical HMM": Model(hidden_states, (5_000, 20_000), (1.0, 4.0), _FULL, fits=0.4),
    "states of a Gaussian HMM": Model(
        hidden_states, (5_000, 20_000), (1.0, 4.0), {"sampling_rate": 1.0, "n_steps": 40}, 0.4, {"seen": "vectors"}
    ),
    "chains of a factorial HMM": Model(
        chains, (5_000, 20_000), (1.0, 4.0), {"sampling_rate": 1.0, "n_steps": 40}, fits=0.4
    ),
    "linear dynamical systems": Model(
        series, (5_000, 20_000), (1.0, 4.0), {"sampling_rate": 1.0, "n_steps": 1}, fits=0.4
    ),
    "states of a Poisson HMM": Model(
        hidden_states, (5_000, 20_000), (1.0, 4.0), {"sampling_rate": 1.0, "n_steps": 40}, 0.4, {"seen": "counts"}
    ),
    "latent classes, misspecified": Model(
        latent_classes, (20_000,), (1.0, 4.0), _FULL, 0.2, {"misspecified": True}
    ),
}  # fmt: skip
for _rows in ("independent", "similar", "the same"):
    MODELS |= {
        f"latent classes, rows {_rows}": Model(
            latent_classes, (5_000, 20_000), (1.0, 4.0), _FULL, 0.4, {"rows": _rows}
        ),
        f"latent classes, rows {_rows}, up to five": Model(
            latent_classes, (5_000, 20_000), (1.0, 4.0), _FULL | {"max_rows_per_group": 5}, 0.4, {"rows": _rows}
        ),
        f"means of a Gaussian mixture, rows {_rows}": Model(
            gaussian_mixture, (5_000, 20_000), (1.0, 4.0), _FULL, 0.4, {"rows": _rows}
        ),
        f"states of a categorical HMM, rows {_rows}": Model(
            hidden_states, (5_000, 20_000), (1.0, 4.0), _FULL, 0.4, {"rows": _rows}
        ),
    }

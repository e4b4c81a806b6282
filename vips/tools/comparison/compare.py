"""``vips.compare``: checks, matching, divergences, scores, arms, in this order."""

from __future__ import annotations

import inspect

from vips._support.pipelines import model_of
from vips.core.mechanism.random_state import as_generator
from vips.expfam.divergences import kl, wasserstein
from vips.report.only_noise import NO_SIGNAL
from vips.report.words import loss, who_counts
from vips.tools.comparison import checks
from vips.tools.comparison.arms import arm_rows, arm_score_rows, fit_arms
from vips.tools.comparison.comparison import Comparison, Divergences
from vips.tools.comparison.movement import Movement, match, parts_of
from vips.tools.comparison.rows import Sources, fit_rows, score_rows

__all__ = ["compare"]


def compare(
    private,
    baseline,
    X_test=None,
    y_test=None,
    *,
    X=None,
    y=None,
    may_use_private_data: bool = False,
    n_bootstrap: int = 1000,
    level: float = 0.95,
    random_state: object = 0,
) -> Comparison:
    """How far a private posterior is from another one, parameter by parameter and in predictions, and why.

    Parameters
    ----------
    private, baseline : fitted models of one class, or pipelines that end in them
        With the same columns and components. The private one may be either; both may be private, at two ε say. To compare
        a private pipeline with a fit without noise, fit the latter to its columns: ``baseline.fit(pipeline[:-1].transform(X),
        y)``.
    X_test, y_test : array or CSR matrix of shape (n_records, n_features), array of shape (n_records,); optional
        Records that were not fitted, to score both models on. By passing them you state that they may be looked at. With a
        pipeline, rows as the pipeline takes them; ``X``, too.
    X, y : optional
        The training data, to separate clipping from noise: the private model is fitted again without noise, and without clip.
    may_use_private_data : bool
        Must be True if ``X`` is given: numbers computed from it have no guarantee.
    n_bootstrap, level : int, float
        Resamples of the test records, and the level of the intervals.
    random_state : int, Generator, RandomState or None
        Seeds the resamples.

    Returns
    -------
    Comparison
        ``str()`` describes it in words; ``rows``; ``divergences``; ``movers()``; ``to_frame()``; ``plot()``.

    Privacy
    -------
    A comparison reveals as much as its arguments. A comparison of two private fits is post-processing of what they released.
    **A comparison with a baseline that was fitted without noise is private data**, as is the baseline: vips cannot know whether
    its records were public. Numbers computed from ``X_test`` or ``X`` are not protected. Every number states its source.

    Raises
    ------
    TypeError
        If the models have different classes, or a posterior whose distributions are unknown.
    ValueError
        If a model is not fitted, shapes, words, features or classes differ, neither model is private, training data are given
        without permission, or test records lack labels. All checks come before any work.

    Examples
    --------
    >>> import numpy as np
    >>> from vips import BayesianLogisticRegression, PrivacyPlan, compare
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-0.5, 0.5, (20_000, 3))
    >>> y = rng.random(20_000) < 1.0 / (1.0 + np.exp(-4.0 * X[:, 0]))
    >>> plan = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-6, sampling_rate=1.0, n_steps=20)
    >>> private = BayesianLogisticRegression(privacy=plan, max_norm=1.0).fit(X[:15_000], y[:15_000])
    >>> baseline = BayesianLogisticRegression(max_norm=1.0).fit(X[:15_000], y[:15_000])
    >>> comparison = compare(private, baseline, X[15_000:], y[15_000:])
    >>> abs(comparison["log-loss (lower is better)"].value) < 0.05
    True
    >>> comparison.source, comparison["log-loss (lower is better)"].private_source
    ('private data', 'X_test: not protected')
    """
    for fitted in (private, baseline):
        checks.check_steps(fitted)
    pipeline = checks.common_pipeline(private, baseline)
    private, baseline = checks.check_models(model_of(private), model_of(baseline))
    checks.check_scores(private, X_test, y_test, n_bootstrap, level)
    checks.check_private_data(private, X, y, may_use_private_data)
    reports = private.privacy_, baseline.privacy_
    if pipeline is not None:
        private, baseline = checks.named(private, pipeline), checks.named(baseline, pipeline)
        X_test = None if X_test is None else checks.encoded(pipeline, X_test)
        X = None if X is None else pipeline[:-1].transform(X)
    alignment = match(private, private.posterior_, baseline.posterior_)
    order = None if alignment is None else alignment.order
    parts = parts_of(private, private.posterior_)
    others = {part.name: part for part in parts_of(baseline, baseline.posterior_, order)}
    pairs = [(part, others[part.name]) for part in parts if part.name in others]  # scales of a prior may be in one only
    rng, sources = as_generator(random_state), Sources.of(private, baseline)
    names, notes = (_described(reports[0], "private fit"), _described(reports[1], "private baseline")), []
    counted = [who_counts(report) for report in reports]
    for which, model, whose in (("private fit", private, counted[0]), ("baseline", baseline, counted[1])):
        if counted[0] != counted[1]:
            notes += [f"in the {which}, {text[0].lower()}{text[1:]}." for text in whose]
        if model.privacy_.only_noise:
            notes.append(f"the {which} has {NO_SIGNAL}.")
        if reason := model.why_no_intervals():
            notes.append(f"deviations of the {which} ignore the noise. {reason}")
    distributions = {ours.name: (ours.distribution, theirs.distribution) for ours, theirs in pairs}
    divergences = {name: Divergences(kl(p, q), kl(q, p), wasserstein(p, q)) for name, (p, q) in distributions.items()}
    movements = tuple(Movement(*pair) for pair in pairs if pair[0].are_parameters)

    rows = fit_rows(private, baseline, alignment, divergences, movements, sources)
    if X_test is not None:
        scores = score_rows(private, baseline, X_test, y_test, sources, (n_bootstrap, level, rng))
        rows += scores
        if not scores:
            notes.append(f"predictions of a {type(private).__name__} have no score here: X_test was not used.")
    if X is not None:
        if alignment is not None and private.random_state is None:
            notes.append(
                "the private fit started at random (random_state=None), and the arms without noise started elsewhere: the "
                "effect of this counts as noise."
            )
        arms = fit_arms(private, X, y)
        rows += arm_rows(private, baseline, arms, X, X_test)
        if X_test is not None:
            rows += arm_score_rows(private, arms, X_test, y_test, (n_bootstrap, level, rng))
    summary = (inspect.getdoc(type(private)) or "").split("\n")[0]
    return Comparison(
        model=type(private).__name__, summary=summary, private=names[0], baseline=names[1], rows=tuple(rows),
        divergences=divergences, alignment=alignment, movements=movements, source=sources.both, level=level,
        privacy=reports, notes=tuple(notes),
        clip_biases=(private.clip_biases(), baseline.clip_biases()),
    )  # fmt: skip


def _described(report, name: str) -> str:
    if not report.plan.is_private:
        return "a baseline without noise"
    if not report.has_guarantee:
        return f"a {name} without a guarantee (noise multiplier {report.plan.noise_multiplier:.3g})"
    if report.delta is None:
        return f"a {name} (noise multiplier {report.plan.noise_multiplier:.3g})"
    return f"a {name} ({loss(report.epsilon(), report.delta)})"

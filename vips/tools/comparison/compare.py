"""``vips.compare``: checks, matching, divergences, scores, arms, in this order.

Does the clip or the noise make the difference? Three arms that differ in nothing else.

    plain    ──clip──▶    clipped    ──noise──▶    private
      a                      b                        c              c - a = (b - a) + (c - b)

share of clipping = ⟨b - a, c - a⟩ / ‖c - a‖², share of noise = ⟨c - b, c - a⟩ / ‖c - a‖²: they sum to 1, and one of them is
negative where it works against the other.

Plain and clipped repeat the private fit (same schedule, same view, same sampling) with noise far below rounding. They do not
use the code path of a non-private fit: there, models start, step, scale and repair differently, which would count as noise. The
plain arm's clip cannot bind. The difference between plain arm and baseline is then due to neither clip nor noise.
"""

from __future__ import annotations

import inspect
from dataclasses import replace

import numpy as np
from sklearn.base import clone

from vips._support.pipelines import model_of
from vips.core.mechanism.random_state import as_generator
from vips.core.plan import PrivacyPlan
from vips.expfam import Dirichlet
from vips.expfam.divergences import kl, wasserstein
from vips.report.only_noise import NO_SIGNAL
from vips.report.words import loss, who_counts
from vips.tools.comparison import checks
from vips.tools.comparison.comparison import Comparison, Divergences, Row
from vips.tools.comparison.movement import Movement, match, parts_of
from vips.tools.comparison.rows import Sources, bootstrap, fit_rows, score_rows
from vips.tools.comparison.text import PRIVATE, X_TEST, combined

__all__ = ["arm_rows", "arm_score_rows", "compare", "fit_arms", "plans_of_arms"]

# Standard deviation of the noise that replaces none, ÷ clip norm: the least that a plan accepts.
_NO_NOISE = 1e-12
# Clip norm that replaces none, for models whose records have no largest norm.
_NO_CLIP = 1e6


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


def plans_of_arms(plan: PrivacyPlan, largest_norm: float) -> tuple[PrivacyPlan, PrivacyPlan]:
    """Plans of the plain and the clipped arm, from that of the private fit and the largest norm of a record, or inf."""
    without_noise = {"noise_multiplier": _NO_NOISE, "noise": "gaussian", "reproducible_noise": True}
    seeded = replace(plan, **without_noise, report_delta=None, sent_from=None)
    largest = max(largest_norm if np.isfinite(largest_norm) else _NO_CLIP, plan.clip_norm)
    return replace(seeded, clip_norm=largest), seeded


def fit_arms(private, X, y=None) -> list:
    """Fit the plain and the clipped arm to the training data. Neither is private, whatever ε its report states."""
    seed = {"random_state": 0} if getattr(private, "random_state", None) is None else {}
    fitted = []
    for plan in plans_of_arms(private.privacy_.plan, private.max_record_norm()):
        arm = clone(private).set_params(privacy=plan, **seed)
        arm.sent_from = None  # the ledger that paid for the private fit; no ledger pays for an arm
        fitted.append(arm.fit(X, y) if private.needs_labels else arm.fit(X))
    return fitted


def arm_rows(private, baseline, arms: list, X, X_test) -> list[Row]:
    """How far clipping, noise and other causes moved parameters and predictions (of test records, or else of fitted ones).

    Parameters are means of the last steps' posteriors, each arm's aligned with the private fit's (for topics: square roots of
    probabilities; in units of columns: divided by deviations of the private fit).
    """
    models, deviations = (*arms, private, baseline), 1.0
    if private.units_of_columns is not None:
        parts = parts_of(private, private.last_posterior_)
        deviations = np.concatenate([np.ravel(part.distribution.std) for part in parts if part.are_parameters])
    rows = _share_rows("parameters", PRIVATE, *(_coordinates(private, model) / deviations for model in models))
    predictions = [model.predictions(X if X_test is None else X_test) for model in models]
    if predictions[0] is None:  # a model class without predictions
        return rows
    source = PRIVATE if X_test is None else combined(PRIVATE, X_TEST)
    return rows + _share_rows("predictions", source, *predictions)


def _share_rows(
    what: str, source: str, plain: np.ndarray, clipped: np.ndarray, private: np.ndarray, baseline: np.ndarray
) -> list[Row]:
    """Effects of clipping and of noise on a vector; their shares are NaN if nothing moved."""
    clipping, noise, together = clipped - plain, private - clipped, private - plain
    size = float(np.vdot(together, together))
    share = float(np.vdot(clipping, together)) / size if size > 0.0 else float("nan")
    moved = {"clipping": clipping, "noise": noise, "neither (plain arm to baseline)": baseline - plain}
    values = {
        f"share of clipping in the shift of {what}": share,
        f"share of noise in the shift of {what}": 1.0 - share,
        **{
            f"shift of {what} by {cause}, root mean square": float(np.sqrt(np.mean(np.square(by_cause))))
            for cause, by_cause in moved.items()
        },
    }
    return [Row(quantity=quantity, value=value, source=source) for quantity, value in values.items()]


def _coordinates(private, model) -> np.ndarray:
    alignment = match(private, private.last_posterior_, model.last_posterior_)
    parts = parts_of(private, model.last_posterior_, None if alignment is None else alignment.order)
    all_means = [
        np.sqrt(part.distribution.mean) if isinstance(part.distribution, Dirichlet) else part.distribution.mean
        for part in parts
        if part.are_parameters
    ]
    return np.concatenate([np.ravel(means) for means in all_means])


def arm_score_rows(private, arms: list, X, y, settings) -> list[Row]:
    """How clipping and noise changed the scores on test records; ``settings`` as of :func:`~.rows.score_rows`."""
    source, rows = combined(PRIVATE, X_TEST), []
    plain, clipped, noisy = (model.held_out_scores(X, y) for model in (*arms, private))
    for what, after, before in (("clipping", clipped, plain), ("noise", noisy, clipped)):
        for one, other in zip(after, before, strict=True):
            _, _, (value, interval) = bootstrap([one, other], X, *settings)
            rows.append(Row(quantity=f"{one.name}, change by {what}", value=value, interval=interval, source=source))
    return rows

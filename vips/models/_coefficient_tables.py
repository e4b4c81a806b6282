"""Coefficients as people read them: a table in the units of the original columns, a forest plot, draws for ArviZ."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr
from scipy.stats import chi2

from vips._support.extras import imported
from vips._support.printable import PLAIN_TEXT, listed, printable, strings_for_pandas
from vips._support.validation import check_level
from vips.core.exact.blas import eigh
from vips.exceptions import PrivacyWarning
from vips.expfam import Gaussian
from vips.models._definite import floored
from vips.report.words import whose

__all__ = [
    "BENT",
    "HIDDEN",
    "INSEPARABLE",
    "TAILS",
    "UNBOUNDED",
    "UNTOLD",
    "Signal",
    "check_indicators",
    "classes_of",
    "coefficient_draws",
    "coefficient_table",
    "forest_plot",
    "in_units",
    "indicator_columns",
    "meaning_of_coefficients",
    "named_columns",
    "names_of_coefficients",
    "signal_of",
    "target_of",
    "warn_of_columns",
    "warn_of_nothing",
    "withhold",
]

# A fit whose coefficients would be as large with this probability if no feature had an effect shows nothing.
_NOTHING = 0.05
_MOST_NAMED = 10  # columns in a warning
# Why there are no limits.
HIDDEN = (
    "Noise hides how much {columns} varies: nothing is known of its effect, whatever its mean, and there are no limits. "
    "Tighter bounds in the encoder, np.log1p of a column with few large values, more records or a larger ε would show it; or "
    "no cell was read, which vips.inspect tells."
)
UNBOUNDED = (
    "Noise hides how large the effect of {columns} is: labels are nearly certain, and the few that are not would tell. Its "
    "mean may be far too small, and there are no limits. More records or a larger ε would show it."
)
INSEPARABLE = (
    "Noise hides the effects of {columns}: these columns hardly vary, or hardly otherwise than others do. There are no limits "
    "in their rows. Of columns that vary together leave one out, or declare their sum or difference in its place; more records "
    "or a larger ε would tell them apart."
)
# Where expected values are not those of the model.
BENT = (
    "Expected values do not depend on {columns} as the model says, by straight lines that add up: large residuals are limited "
    "and rows far out weigh less, so coefficients, and the intercept, may be off by more than their limits. Add squares or "
    "products of these columns, or make categories of them."
)
# What a private fit makes of columns whose variance is in few rows.
TAILS = (
    "A part of the variance of {columns} is in few rows far out, which a private fit weighs less: its effect and the intercept "
    "are those of the other rows. Where the far ones differ, both may be off by more than their limits. Bounds without these "
    "rows, np.log1p of the column, or categories for a column of two values say more."
)
# Where noise hides whether that is so.
UNTOLD = (
    "Noise hides whether a part of the variance of {columns} is in few rows far out, which a private fit weighs less: its "
    "effect and the intercept would then be those of the other rows. Bounds nearer to the values, more records or a larger ε "
    "would tell."
)
_LEAST = 1e-10  # eigenvalue of correlations of coefficients in the units of columns


@dataclass(frozen=True)
class Signal:
    """Whether coefficients stand out from sampling and noise.

    Parameters
    ----------
    share : float
        Share of their squared length, in units of their uncertainty, that is more than that of a table without effects: from 0
        to 1.
    p_value : float
        Probability of coefficients that stand out as much, if no feature had an effect.
    """

    share: float
    p_value: float

    @property
    def is_nothing(self) -> bool:
        """Whether a fit to labels that depend on nothing would look like this."""
        return self.p_value > _NOTHING


def signal_of(posterior, prior: Sequence[np.ndarray], n_features: int, linear=None) -> Signal:
    """χ² test of the coefficients, all outputs together, against no effects.

    A posterior N(m, V) under the prior N(A⁻¹h, A⁻¹) is that of an estimate b = L⁻¹ (V⁻¹ m - h) with the precision L = V⁻¹ - A.
    Without effects bᵀ L b of the features has a χ² distribution. What the prior knows does not count.

    Parameters
    ----------
    posterior : Gaussian or DiagonalGaussian
    prior : sequence of n_outputs ndarrays of shape (d,) or (d, d)
        Each A, or its diagonal.
    n_features : int
        Number of coefficients without the intercept, which comes last.
    linear : sequence of n_outputs ndarrays of shape (d,), optional
        Each h; None for 0.
    """
    means, covs = np.atleast_2d(posterior.mean), _covariances(posterior)
    total, degrees = 0.0, 0
    linear = np.zeros(means.shape) if linear is None else linear
    for mean, cov, prior_precision, known in zip(means, covs, prior, linear, strict=True):
        prior_precision = np.diag(prior_precision) if np.ndim(prior_precision) == 1 else prior_precision
        inverse = np.linalg.inv(cov)
        values, vectors = np.linalg.eigh(inverse - prior_precision)
        seen = values > 1e-9 * values.max()
        estimate = (vectors[:, seen] / values[seen]) @ (vectors[:, seen].T @ (inverse @ mean - known))
        spread = (vectors[:, seen] / values[seen]) @ vectors[:, seen].T
        values, vectors = np.linalg.eigh(spread[:n_features, :n_features])
        spans = values > 1e-9 * values.max()
        total += float(np.sum((vectors[:, spans].T @ estimate[:n_features]) ** 2 / values[spans]))
        degrees += int(spans.sum())
    return Signal(max(0.0, 1.0 - degrees / total) if total > 0.0 else 0.0, float(chi2.sf(total, degrees)))


def coefficient_table(model, posterior, level: float, units=None):
    """One row for each coefficient and the intercept; see ``PolyaGammaRegression.summary``. No ratios where the model's
    ``name_of_ratio`` is None."""
    pd = imported("pandas", "summary()")

    check_level(level)
    names, classes = names_of_coefficients(model, units), classes_of(model)[:-1]
    frames = []
    posterior = in_units(posterior, units, model.fit_intercept)
    for mean, cov in zip(np.atleast_2d(posterior.mean), _covariances(posterior), strict=True):
        marginal = Gaussian(mean[:, None], 1.0 / np.maximum(np.diagonal(cov), 1e-300)[:, None, None])
        lower, upper = (side[:, 0] for side in marginal.interval(level))
        columns = {
            "mean": mean,
            "std": marginal.std[:, 0],
            "lower": lower,
            "upper": upper,
            "P(> 0)": ndtr(mean / marginal.std[:, 0]),
        }
        if (ratio := model.name_of_ratio) is not None:
            with np.errstate(over="ignore"):  # a ratio may be infinite
                columns |= {ratio: np.exp(mean), f"{ratio}, lower": np.exp(lower), f"{ratio}, upper": np.exp(upper)}
        index = pd.Index(strings_for_pandas(names), name=meaning_of_coefficients(model))
        frames.append(pd.DataFrame(columns, index=index))
    table = pd.concat(frames, keys=classes, names=[target_of(model)]) if len(frames) > 1 else frames[0]
    table.attrs["level"] = level
    table.columns.name = whose(getattr(model, "privacy_", None))
    return table


def check_indicators(indicators, n_features: int | None = None) -> None:
    """Raise ValueError unless these are triples (first, last, value), of so many columns."""
    try:
        well_formed = all(
            isinstance(first + last, int) and np.isfinite(value) for first, last, value in indicators or ()
        )
    except (TypeError, ValueError):
        well_formed = False
    if not well_formed:
        raise ValueError(
            "`indicators` must be triples (first, last, value) of columns of which each row has exactly one, or None: those of "
            f"a TableEncoder are its `indicators`. Got {indicators!r}."
        )
    if n_features is not None and not all(0 <= first < last <= n_features for first, last, _ in indicators or ()):
        raise ValueError(f"`indicators` are not among the {n_features} columns of X: {indicators!r}.")


def indicator_columns(n_features: int, *indicators) -> np.ndarray:
    """Columns of any of these (first, last, value), shape (n_features,)."""
    are = np.zeros(n_features, bool)
    for first, last, _ in (triple for triples in indicators for triple in triples or ()):
        are[first:last] = True
    return are


def named_columns(model, are: np.ndarray, units) -> str:
    """Names of the columns to which these features belong, the first few of many."""
    names = model.column_names() if units is None else list(units[0])
    chosen = [printable(name) for name, is_one in zip(names, _rows_of(are, units), strict=True) if is_one]
    return listed(chosen, _MOST_NAMED)


def _rows_of(are: np.ndarray, units) -> np.ndarray:
    """Rows of a table, but for the intercept's, to which these features belong."""
    return are if units is None else (units[1][:, : len(are)] != 0.0) @ are


def withhold(model, table, features: np.ndarray, units, why: str) -> None:
    """No limits in rows of a :func:`coefficient_table` that depend on features of which noise hides too much, and a warning.

    ``features``: shape (n_outputs, n_features).
    """
    intercept = int(bool(model.fit_intercept))  # it stands for rows in which these columns are 0
    rows = [np.append(_rows_of(of_output, units), np.full(intercept, of_output.any())) for of_output in features]
    table.loc[np.concatenate(rows), table.columns != "mean"] = np.nan
    warn_of_columns(model, features, units, why, 5)


def warn_of_columns(model, features: np.ndarray, units, why: str, stacklevel: int) -> None:
    """Warn of features of which noise hides too much, if there are any; shape ([n_outputs,] n_features)."""
    if (of_any := np.atleast_2d(features).any(axis=0)).any():
        message = why.format(columns=named_columns(model, of_any, units))
        warnings.warn(message, PrivacyWarning, stacklevel=stacklevel)


def warn_of_nothing(model, signal: Signal) -> None:
    """Warn that the coefficients are those of noise."""
    if signal.is_nothing or (model.is_private and model.privacy_.only_noise):
        classes = classes_of(model) if model.is_private else []
        undeclared = f" Or perhaps no label is one of {classes}, the declared classes." if classes else ""
        warnings.warn(
            f"No coefficient stands out: a fit to labels that depend on no column would show as much with probability "
            f"{signal.p_value:.2g}. Read the intervals as what is left open, not the means as effects. A larger ε, more "
            f"records or fewer columns would show more.{undeclared}",
            PrivacyWarning,
            stacklevel=4,
        )


def forest_plot(table, ax=None):
    """Means and intervals of a :func:`coefficient_table`, one line each, the intercept left out."""
    plt = imported("matplotlib.pyplot", "plot_coefficients()")

    rows = table[[str(name if isinstance(name, str) else name[-1]) != "intercept" for name in table.index]]
    names = [name if isinstance(name, str) else f"{rows.index.names[0]} = {name[0]}: {name[1]}" for name in rows.index]
    if ax is None:
        _, ax = plt.subplots(figsize=(6.4, 0.9 + 0.3 * len(rows)), layout="constrained")
    place = np.arange(len(rows))[::-1]
    mean = rows["mean"].to_numpy()
    errors = np.stack([mean - rows["lower"].to_numpy(), rows["upper"].to_numpy() - mean])
    ax.axvline(0.0, color="0.6", linewidth=0.8)
    ax.errorbar(mean, place, xerr=errors, fmt="o", color="tab:blue", capsize=3, markersize=4)
    ax.set_yticks(place, [printable(name) for name in names], **PLAIN_TEXT)
    ax.set_xlabel(f"{rows.index.names[-1]}, with its {100 * table.attrs['level']:g} % interval", **PLAIN_TEXT)
    return ax


def coefficient_draws(model, posterior, n_draws: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Draws of "coef", shape (1, n_draws, [n_outputs,] n_features), and of "intercept" if there is one."""
    draws = posterior.sample(n_draws, rng)[None]
    parts = {"coef": draws[..., : model.n_features_in_]}
    return parts | ({"intercept": draws[..., -1]} if model.fit_intercept else {})


def _covariances(posterior) -> Iterable[np.ndarray]:
    d = posterior.mean.shape[-1]
    if hasattr(posterior, "cov"):
        return posterior.cov.reshape(-1, d, d)
    return [np.diag(variance) for variance in np.atleast_2d(posterior.var)]


def _definite_in_own_units(cov: np.ndarray) -> np.ndarray:
    """A covariance that rounding has made indefinite where a variance is far above others."""
    deviations = np.sqrt(np.diag(cov))
    units = np.outer(deviations, deviations)
    correlations = cov / units
    return cov if eigh(correlations)[0].min() > _LEAST else floored(correlations, _LEAST) * units


def in_units(posterior, units, has_intercept: bool):
    """The posterior of the coefficients of the original columns, and of the intercept, which absorbs their origins.

    Parameters
    ----------
    posterior : Gaussian or DiagonalGaussian
        Of the coefficients of features, and of the intercept in the last place if there is one.
    units : tuple or None
        See :meth:`vips.preprocessing.TableEncoder.in_column_units`; None for features that are columns.
    """
    if units is None:
        return posterior
    _, matrix, shift = units
    full = np.zeros((len(matrix) + has_intercept, posterior.mean.shape[-1]))
    full[: len(matrix), : matrix.shape[1]] = matrix
    if has_intercept:
        full[-1] = np.append(shift, 1.0)
    mean = posterior.mean @ full.T
    covs = np.stack([_definite_in_own_units(full @ cov @ full.T) for cov in _covariances(posterior)])
    return Gaussian.from_covariance(mean, covs.reshape(*mean.shape, -1))


def names_of_coefficients(model, units) -> list[str]:
    """Names of these, in their order."""
    names = model.column_names() if units is None else list(units[0])
    return [*names, "intercept"] if model.fit_intercept else names


def meaning_of_coefficients(model) -> str:
    """What a coefficient is; of two classes, the last one is "yes"."""
    classes, target = classes_of(model), target_of(model)
    if len(classes) != 2:
        return "log odds against later classes" if classes else "coefficient"
    return printable(f"log odds of {target} = {classes[-1]!r}")


def target_of(model) -> str:
    """The name of what is predicted."""
    return printable(str(getattr(model, "target_name_", "y")))


def classes_of(model) -> list:
    """The classes of a fitted classifier, in the order of its coefficients: the last one is "yes"; else none."""
    return np.asarray(getattr(getattr(model, "likelihood", None), "labels", ())).tolist()

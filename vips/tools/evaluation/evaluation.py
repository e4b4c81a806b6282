"""What one released histogram says about a classifier: scores with intervals, calibration, a picture."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit

from vips._support.extras import imported
from vips._support.printable import PLAIN_TEXT, printable
from vips._support.validation import check_level
from vips.core.units import noun_of
from vips.report import words
from vips.report.report import PrivacyReport
from vips.tools.evaluation import estimates
from vips.tools.evaluation.estimates import EDGES, Estimate

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["Evaluation"]

# Least number of records in a row of the calibration, in units of its noise.
_LEAST_SIGNAL = 10.0
_NAMES = {"auc": "AUC", "log_loss": "log loss", "brier": "Brier score", "error": "errors"}


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Scores of a classifier on private records. Everything in it is public, and follows from ``histogram``.

    Intervals are of the score for all persons of whom the records are a sample: they account for the noise and the sample,
    whatever the model and the outcome are. Where noise hides a score, its interval is the whole range.

    Attributes
    ----------
    histogram : ndarray of shape (2, 24)
        Noisy number of records without (first row) and with the outcome, by risk: bins of width ½ of its log odds, from -6 to
        6. The outermost bins hold everything beyond, so that the log loss is that of probabilities between 0.003 and 0.997.
    std : float
        Standard deviation of the noise on each cell.
    outcome : str
        What the model predicts, in words.
    is_of_predicted : bool
        Whether the outcome is that the most probable class is right, and the risk its probability.
    privacy : PrivacyReport
        What it cost, what one record is, and the ledger that counted it.
    auc, log_loss, brier, error : Estimate
        ``value``, ``lower`` and ``upper`` at 95 %, and whether noise hides it (``is_hidden``). ``error`` is the share of wrong
        classes.
    """

    histogram: np.ndarray
    std: float
    outcome: str
    is_of_predicted: bool
    privacy: PrivacyReport = field(repr=False)

    @property
    def auc(self) -> Estimate:
        return self._score("auc", 0.95)

    @property
    def log_loss(self) -> Estimate:
        return self._score("log_loss", 0.95)

    @property
    def brier(self) -> Estimate:
        return self._score("brier", 0.95)

    @property
    def error(self) -> Estimate:
        return self._score("error", 0.95)

    def summary(self, level: float = 0.95) -> pd.DataFrame:
        """All scores, and the share of records with the outcome: "value", "lower", "upper", "is_hidden"."""
        check_level(level)
        names = (*_NAMES, "outcome")
        return imported("pandas", "summary()").DataFrame(
            [self._score(name, level) for name in names], index=names, columns=["value", "lower", "upper", "is_hidden"]
        )

    def calibration(self, level: float = 0.95) -> pd.DataFrame:
        """How many have the outcome among those with a risk: neighbouring bins, as many as noise needs to show a share.

        Returns
        -------
        pandas.DataFrame
            A row for each range of risks: "from", "to", "n_records" (noisy), "risk" (predicted on average), and the "share"
            with the outcome, "lower" and "upper".
        """
        check_level(level)
        pd, middle = imported("pandas", "calibration()"), expit(estimates.centres())
        edges, rows = np.concatenate([[0.0], EDGES, [1.0]]), []
        for bins in self._ranges():
            z = self.histogram[:, bins]
            by_bin = np.maximum(z.sum(axis=0), 0.0)
            share = estimates.linear_score(z, self.std**2, estimates.weights("outcome")[:, bins], 1.0, level)
            risk = np.average(middle[bins], weights=by_bin)
            rows.append((edges[bins.start], edges[bins.stop], z.sum(), risk, *share[:3]))
        return pd.DataFrame(rows, columns=["from", "to", "n_records", "risk", "share", "lower", "upper"], dtype=float)

    def plot(self, level: float = 0.95) -> Figure:
        """Calibration with its intervals, and the ROC curve."""
        plt = imported("matplotlib.pyplot", "plot()")
        figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 4.4), layout="constrained")
        table = self.calibration(level)
        for ax in (left, right):
            ax.plot([0, 1], [0, 1], color="0.6", linewidth=0.8)
            ax.set_aspect("equal")
        left.fill_between(table["risk"], table["lower"], table["upper"], color="tab:blue", alpha=0.2, linewidth=0.0)
        left.plot(table["risk"], table["share"], "o-", color="tab:blue", markersize=4)
        left.set_xlabel("predicted")
        left.set_ylabel(f"share: {printable(self.outcome)}, with its {100 * level:g} % interval", **PLAIN_TEXT)
        bins = estimates.bins_in_use(self.histogram, self.std)
        above = np.cumsum(np.maximum(self.histogram[:, bins], 0.0)[:, ::-1], axis=1)
        rates = np.hstack([np.zeros((2, 1)), above / np.maximum(above[:, -1:], 1e-300)])
        right.plot(*rates, color="tab:blue")
        right.set_xlabel("share above a risk, of those without the outcome")
        right.set_ylabel("of those with it")
        right.set_title(f"AUC {_in_words(self._score('auc', level))}", fontsize="medium")
        return figure

    def __str__(self) -> str:
        scores = {text: self._score(name, 0.95) for name, text in _NAMES.items()}
        shown = [f"{text} {_in_words(score)}" for text, score in scores.items() if not score.is_hidden]
        hidden = [text for text, score in scores.items() if score.is_hidden]
        about = [
            f"{', '.join(shown)}; intervals of 95 % hold noise and sample" if shown else "",
            f"noise hides {', '.join(hidden)}: more records or a larger ε show more" if hidden else "",
        ]
        noun, delta, ledger = noun_of(self.privacy.unit), self.privacy.delta, self.privacy.ledger
        n, noise = max(self.histogram.sum(), 0.0), self.std * math.sqrt(self.histogram.size)
        cost = "" if delta is None else f" It costs {words.loss(self.privacy.epsilon(), delta)}."
        charge = "" if ledger is None else f" Charged to {ledger['dataset']!r} as run {ledger['run']}."
        text = "; ".join(filter(None, about))
        return (
            f"{text[:1].upper()}{text[1:]}. Outcome: {self.outcome}; about {n:,.0f} records (noise {noise:,.0f}), each {noun} "
            f"weighs alike.{cost}{charge}"
        )

    def _score(self, name: str, level: float) -> Estimate:
        bins = estimates.bins_in_use(self.histogram, self.std)
        z, variance = self.histogram[:, bins], self.std**2
        if name == "auc":
            return estimates.area_under_curve(z, variance, level)
        if name != "error":
            c = estimates.weights(name)[:, bins]
        elif self.is_of_predicted:
            c = 1.0 - estimates.weights("outcome")[:, bins]
        else:  # 1 in cells where the predicted class is wrong
            is_predicted = estimates.centres()[bins] > 0.0
            c = np.stack([is_predicted, ~is_predicted]).astype(np.float64)
        return estimates.linear_score(z, variance, c, max(c.max(), 1.0), level)

    def _ranges(self) -> list[slice]:
        """Neighbouring bins that together hold enough records beside their noise; the last ones join their neighbours."""
        used = estimates.bins_in_use(self.histogram, self.std)
        by_bin, ranges, start = self.histogram.sum(axis=0), [], used.start
        for stop in range(start + 1, used.stop + 1):
            if by_bin[start:stop].sum() >= _LEAST_SIGNAL * self.std * math.sqrt(2 * (stop - start)):
                ranges.append(slice(start, stop))
                start = stop
        if ranges and start < used.stop:
            ranges[-1] = slice(ranges[-1].start, used.stop)
        return ranges


def _in_words(score: Estimate) -> str:
    return f"{score.value:.3f} ({score.lower:.3f} to {score.upper:.3f})"

"""Methods for people who read classes: a summary, profiles, a picture, which classes are real."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils.validation import check_is_fitted

from vips._extras import imported
from vips._printable import printable, strings_for_pandas
from vips._validation import check_integer
from vips.models.mixtures.evidence import ClassEvidence, class_evidence

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["ReadableClasses"]


class ReadableClasses:
    """What a latent class model shows to its readers. Everything is computed from its posterior and its noisy totals."""

    def evidence(self) -> ClassEvidence | None:
        """Which classes are real, doubtful, noise or empty; None for a fit without noise, and for a single class.

        Each class is compared with those of four fits to generated records without classes, under as much noise. Only released
        numbers are used, so that this costs no budget. The first call takes about as long as four fits to 5,000 records.
        """
        check_is_fitted(self, "posterior_")
        if not hasattr(self, "noisy_totals_") or self.n_components == 1:
            return None
        known = self.__dict__.get("_evidence")
        if known is None or known[0] is not self.posterior_:
            self._evidence = known = (self.posterior_, class_evidence(self))
        return known[1]

    def findings(self) -> dict[str, float]:
        """How many classes are real."""
        evidence = self.evidence()
        return {} if evidence is None else {"number of real classes": float(evidence.labels.count("real"))}

    def class_profiles(self) -> pd.DataFrame:
        """Probabilities of the answers in each class, as a data frame: columns and categories by classes."""
        pd = imported("pandas", "class_profiles()")

        check_is_fitted(self)
        index = pd.MultiIndex.from_tuples(self._pairs(), names=["column", "category"])
        return pd.DataFrame(self.components_.T, index=index)

    def summary(self, n_answers: int = 3) -> pd.DataFrame:
        """A table of the classes, the largest first.

        Parameters
        ----------
        n_answers : int
            Number of answers that are named for each class.

        Returns
        -------
        pandas.DataFrame
            A row for each class, by its number. "share". Of fits with noise, "noise": the standard deviation of the share
            by the noise alone; and, of several classes, "label": see :meth:`evidence`. "typical answers": those that tell
            the class from everybody, ranked by p log(p / overall), each with its probability p in the class and, in
            brackets, over all classes. There is no interval of a share: who is in which class is uncertain, too, and
            records that are surely in one class are clipped more.

        Raises
        ------
        ValueError
            If ``n_answers`` is not a positive integer.
        """
        pd = imported("pandas", "summary()")

        check_integer("n_answers", n_answers)
        order = np.argsort(-self.weights_, kind="stable")
        table = {"share": self.weights_[order]}
        if hasattr(self, "noisy_totals_"):
            total = max(float(self.posterior_.weights.concentration.sum()), 1.0)
            table["noise"] = np.full(len(order), self.noisy_totals_.noise_std["count"] / total)
        evidence = self.evidence()
        if evidence is not None:
            table["label"] = [evidence.labels[k] for k in order]
        table["typical answers"] = strings_for_pandas([self._typical(k, n_answers) for k in order])
        return pd.DataFrame(table).set_index(pd.Index(order, name="class"))

    def plot_profiles(self, columns: Sequence[str] | None = None, *, ax: Axes | None = None) -> Axes:
        """A picture of the classes: a column for each, the largest first, and a row for each answer, darker if more probable.

        Titles of classes give their share, and whether they are real, doubtful, noise or empty; see :meth:`evidence`.

        Parameters
        ----------
        columns : sequence of names, optional
            None: all.
        ax : matplotlib.axes.Axes, optional

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        ImportError
            Without matplotlib.
        ValueError
            If a column does not exist.
        """
        check_is_fitted(self, "posterior_")
        names, pairs = self.column_names(), self._pairs()
        shown = set(names if columns is None else map(str, columns))
        if not shown or shown - set(names):
            raise ValueError(f"`columns` must name columns of the model, got {columns!r}.")
        from vips.models.mixtures.plot import plot_profiles

        rows = [v for v, (name, _) in enumerate(pairs) if name in shown]
        order = np.argsort(-self.weights_, kind="stable")
        evidence = self.evidence()
        titles = [
            f"{k}: {100.0 * self.weights_[k]:.3g} %" + ("" if evidence is None else f"\n{evidence.labels[k]}")
            for k in order
        ]
        return plot_profiles(self.components_[np.ix_(order, rows)], [pairs[v] for v in rows], titles, ax)

    def _pairs(self) -> list[tuple[str, object]]:
        """Column and category of each level."""
        columns = zip(self.column_names(), self._known(), strict=True)
        return [(name, category) for name, listed in columns for category in listed]

    def _typical(self, k: int, n: int) -> str:
        overall, probabilities = self.weights_ @ self.components_, self.components_[k]
        gain = probabilities * np.log(np.maximum(probabilities, 1e-300) / np.maximum(overall, 1e-300))
        pairs = self._pairs()
        best = [v for v in np.argsort(-gain, kind="stable")[:n] if gain[v] > 0.0]
        answers = (f"{pairs[v][0]} = {pairs[v][1]} {probabilities[v]:.2f} ({overall[v]:.2f})" for v in best)
        return "; ".join(map(printable, answers))

"""What people read of a mixture: a table of its components, a picture, and how many there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils.validation import check_is_fitted

from vips._extras import imported
from vips.models._gaussians.posterior import MixturePosterior

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["ReadableMixture"]

_HIDDEN = 3.0  # counts below this many noise standard deviations are treated as zero


class ReadableMixture:
    """Methods of :class:`~vips.BayesianGaussianMixture` for people; all of released numbers."""

    @property
    def n_components_effective_(self) -> int:
        """Number of components with records: whose count is at least 1, and in a private fit stands out from its noise."""
        return int(self._has_records().sum())

    def summary(self) -> pd.DataFrame:
        """The components, the largest first.

        Returns
        -------
        pandas.DataFrame
            A row for each component: its share; whether it has records, or may be noise; mean and standard deviation of each
            column.
        """
        pd = imported("pandas", "summary()")

        check_is_fitted(self, "posterior_")
        order = np.argsort(-self.weights_, kind="stable")
        table = {
            "share": self.weights_[order],
            "records": np.where(self._has_records(), "yes", "none, or hidden by noise")[order],
        }
        deviations = np.sqrt(np.diagonal(self._matrices(), axis1=1, axis2=2))
        for j, name in enumerate(self.column_names()):
            table[f"mean {name}"] = self.means_[order, j]
            table[f"std {name}"] = deviations[order, j]
        return pd.DataFrame(table, index=pd.Index([f"component {k}" for k in order]))

    def plot_components(self, columns: tuple = (0, 1), *, X=None, ax: Axes | None = None) -> Axes:
        """A picture in two columns: ellipses that hold a half and nine tenths of each component, darker for larger ones.

        Parameters
        ----------
        columns : tuple of two names or indices
        X : array of shape (n_records, n_features), optional
            Records to draw beside them. The picture then shows these records, and is not private.
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
        from vips.models.gaussian_mixtures.plot import plot_ellipses

        check_is_fitted(self, "posterior_")
        names = self.column_names()
        places = [names.index(column) if column in names else column for column in columns]
        if len(places) != 2 or not all(isinstance(j, int | np.integer) and 0 <= j < len(names) for j in places):
            raise ValueError(f"`columns` must be two names or indices of columns, got {columns!r}.")
        square = np.ix_(range(len(self.means_)), places, places)
        records = None if X is None else self._validated(X, reset=False)[:, places]
        return plot_ellipses(
            self.means_[:, places], self._matrices()[square], self.weights_, [names[j] for j in places], records, ax
        )

    def findings(self) -> dict[str, float]:
        """Number of components with records."""
        return {"components with records": float(self.n_components_effective_)}

    def _matrices(self) -> np.ndarray:
        """Covariances of all components, (K, d, d); of Student-t components scale matrices."""
        factors, d = self.posterior_.factors, self.posterior_.mean.shape[1]
        if factors.shape[1] == d:
            return factors @ np.swapaxes(factors, 1, 2)
        return np.square(factors[:, 0])[:, :, None] * np.eye(d)

    def _has_records(self) -> np.ndarray:
        check_is_fitted(self, "posterior_")
        if hasattr(self, "noisy_totals_"):
            totals = self.noisy_totals_
            return totals.average["count"] >= np.maximum(1.0, _HIDDEN * np.asarray(totals.noise_std["count"]))
        posterior: MixturePosterior = self.posterior_
        count = posterior.concentration
        if not posterior.plug_in:
            prior = self._priors().concentration
            count = count[0] - 1.0 if count.ndim == 2 else count - prior
        return count >= 1.0

"""What people read of a hidden Markov model: a table of its states, and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils.validation import check_is_fitted

from vips._extras import imported
from vips._printable import printable

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["ReadableChain", "names_of"]


class ReadableChain:
    """Methods of hidden Markov models for people; all of released numbers, unless sequences are passed."""

    @property
    def shares_(self) -> np.ndarray:
        """Shares of the states among all steps, shape (K,)."""
        check_is_fitted(self, "posterior_")
        posterior = self.posterior_
        visits = posterior.start.concentration + posterior.moves.concentration.sum(axis=0)
        return visits / visits.sum()

    def summary(self, *, names: Sequence[str] | None = None, n_typical: int = 5) -> pd.DataFrame:
        """The states, in their order.

        Parameters
        ----------
        names : sequence of str, optional
            Of the symbols, or of the columns.
        n_typical : int
            Symbols in the row of a state.

        Returns
        -------
        pandas.DataFrame
            A row for each state: its share of the steps, how probable it is as the first one, how many steps a stay takes on
            average, where it goes most often, and what is seen in it.
        """
        pd = imported("pandas", "summary()")

        shares, start, moves, K = self.shares_, self.startprob_, self.transmat_, self.n_components
        away = moves * (1.0 - np.eye(K))
        after = [f"state {np.argmax(row)} ({100.0 * row.max():.0f} %)" if row.any() else "" for row in away]
        stays = 1.0 / np.maximum(1.0 - np.diagonal(moves), 1e-12)
        table = {
            "share": shares,
            "first": start,
            "steps of a stay": np.minimum(stays, float(self.max_length)),
            "then": after,
        }
        return pd.DataFrame(table | self._seen(names, n_typical), index=pd.Index(self._state_names()))

    def plot_transitions(self, ax: Axes | None = None) -> Axes:
        """A picture of the moves: states as large as their shares of the steps, arrows as wide as moves are probable.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional

        Returns
        -------
        matplotlib.axes.Axes
        """
        from vips.models.markov.plot import plot_transitions

        return plot_transitions(self.transmat_, self.shares_, self.startprob_, self._state_names(), ax)

    def plot_emissions(self, *, names: Sequence[str] | None = None, n_rows: int = 40, ax: Axes | None = None) -> Axes:
        """A picture of what is seen in each state.

        Parameters
        ----------
        names : sequence of str, optional
            Of the symbols, or of the columns.
        n_rows : int
            Symbols that are shown, the most frequent ones.
        ax : matplotlib.axes.Axes, optional

        Returns
        -------
        matplotlib.axes.Axes
        """
        from vips.models.markov.plot import plot_emissions

        values, rows, label = self._emissions(names, n_rows)
        return plot_emissions(values, rows, self._state_names(), label, ax)

    def plot_sequences(self, X, lengths=None, ax: Axes | None = None) -> Axes:
        """A picture of these sequences, coloured by their most probable states. It shows these records, and is not private.

        Returns
        -------
        matplotlib.axes.Axes
        """
        from vips.models._sequence_plot import plot_sequences

        return plot_sequences(self, X, lengths, self._state_names(), ax)

    def _state_names(self) -> list[str]:
        return [f"state {k}" for k in range(self.n_components)]


def names_of(names: Sequence[str] | None, n: int, kind: str) -> list[str]:
    """As many names, by default numbers.

    Raises
    ------
    ValueError
        If there are more or fewer.
    """
    if names is None:
        return [f"{kind} {i}" for i in range(n)]
    if len(names) != n:
        raise ValueError(f"`names` must have {n} names, one for each {kind}, got {len(names)}.")
    return [printable(str(name)) for name in names]

"""The result of a comparison: rows of numbers with their sources, in words, as a table, as a figure."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri

from vips._pages.tables import html_table
from vips._support.alignment import Alignment
from vips._support.extras import imported
from vips._support.files import text_or_file
from vips._support.printable import PLAIN_TEXT, printable
from vips.core.ledger.ledger import PrivacyLedger
from vips.expfam.divergences import bound_from_kl
from vips.report.report import PrivacyReport
from vips.report.report_fields import finite
from vips.tools.comparison.curve import UtilityCurve
from vips.tools.comparison.movement import Movement, Mover, largest
from vips.tools.comparison.text import HEADS, notes, paragraph, table, table_cells

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Comparison", "Divergences", "Mover", "Row"]

_NAN = float("nan")
_NO_INTERVAL = (_NAN, _NAN)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One quantity. Numbers that do not exist are NaN.

    Attributes
    ----------
    quantity : str
    private, baseline : float
        The numbers of each model, if the quantity belongs to one model.
    value : float
        Private minus baseline; or a divergence, or a share; or the private model's number, if the baseline has none.
    private_interval, baseline_interval, interval : (float, float)
        Bootstrap intervals.
    private_source, baseline_source, source : str
        Source of each of the three: ``"released"`` values, ``"X_test: not protected"``, ``"private data"``, or
        the last two together; empty if there is no number.
    is_detail : bool
        Left out by ``str()``.
    """

    quantity: str
    private: float = _NAN
    baseline: float = _NAN
    value: float
    private_interval: tuple[float, float] = _NO_INTERVAL
    baseline_interval: tuple[float, float] = _NO_INTERVAL
    interval: tuple[float, float] = _NO_INTERVAL
    private_source: str = ""
    baseline_source: str = ""
    source: str
    is_detail: bool = False


@dataclass(frozen=True)
class Divergences:
    """Divergences of one part of the posterior, for each leading index (each topic, each visible unit, …).

    Attributes
    ----------
    kl_private_baseline, kl_baseline_private : ndarray
        KL(private ‖ baseline) and the other way round.
    wasserstein : ndarray or None
        2-Wasserstein distance; None if there is no closed form.
    """

    kl_private_baseline: np.ndarray
    kl_baseline_private: np.ndarray
    wasserstein: np.ndarray | None

    @property
    def total_variation_bound(self) -> np.ndarray:
        """Upper bound on the total variation distance, for each leading index."""
        return bound_from_kl(np.minimum(self.kl_private_baseline, self.kl_baseline_private))

    @property
    def total(self) -> tuple[float, float, float, float]:
        """All indices together, which are independent: both KL, Wasserstein (NaN for None), bound on total variation."""
        forward, backward = float(np.sum(self.kl_private_baseline)), float(np.sum(self.kl_baseline_private))
        distance = _NAN if self.wasserstein is None else float(np.sqrt(np.sum(np.square(self.wasserstein))))
        return forward, backward, distance, float(bound_from_kl(min(forward, backward)))


@dataclass(frozen=True)
class Comparison:
    """Two posteriors of one model class; the result of :func:`vips.compare`.

    Attributes
    ----------
    model : str
        Name of the class.
    summary : str
        Description of the class: the first line of its docstring.
    private, baseline : str
        Descriptions of the two fits.
    rows : tuple of Row
        All results.
    divergences : dict of Divergences
        By part of the posterior.
    alignment : Alignment or None
        The match of the baseline's topics or hidden units with those of the private model.
    movements : tuple of Movement
        Means and standard deviations of all parameters, by part.
    source : str
        Source of divergences and movers.
    level : float
        Level of bootstrap intervals.
    privacy : (PrivacyReport, PrivacyReport)
        The privacy statements of the private fit and of the baseline.
    notes : tuple of str
    clip_biases : (bool, bool)
        Whether clipping may have biased the parameters of the private fit, and of the baseline.
    """

    model: str
    summary: str
    private: str
    baseline: str
    rows: tuple[Row, ...]
    divergences: dict[str, Divergences]
    alignment: Alignment | None
    movements: tuple[Movement, ...]
    source: str
    level: float
    privacy: tuple[PrivacyReport, PrivacyReport]
    notes: tuple[str, ...] = ()
    clip_biases: tuple[bool, bool] = (False, False)

    def __getitem__(self, quantity: str) -> Row:
        """The row of a quantity."""
        for row in self.rows:
            if row.quantity == quantity:
                return row
        raise KeyError(
            f"There is no row {quantity!r}. The rows are: {', '.join(repr(row.quantity) for row in self.rows)}."
        )

    def movers(self, n: int = 10, by: str = "standardized") -> list[Mover]:
        """The parameters whose posterior means moved most.

        Parameters
        ----------
        n : int
        by : {"standardized", "absolute"}
            Differences in units of the pooled posterior standard deviation, or of the parameter.

        Returns
        -------
        list of Mover
            Largest first.

        Raises
        ------
        ValueError
        """
        return [movement.mover(index, self.source) for movement, index in largest(self.movements, n, by)]

    def to_frame(self, which: str = "summary") -> pd.DataFrame:
        """A table.

        Parameters
        ----------
        which : {"summary", "parameters"}
            One line for each of :attr:`rows`; or one line for each parameter, with the columns of :class:`Mover`.

        Returns
        -------
        pandas.DataFrame

        Raises
        ------
        ImportError
            Without pandas.
        """
        if which not in ("summary", "parameters"):
            raise ValueError(f'`which` must be "summary" or "parameters", got {which!r}.')
        pandas = imported("pandas", "to_frame()")
        if which == "parameters":
            frames = [pandas.DataFrame(movement.columns()) for movement in self.movements]
            return pandas.concat(frames, ignore_index=True).assign(source=self.source)
        columns = {}
        for field in fields(Row):
            values = [getattr(row, field.name) for row in self.rows]
            if field.name.endswith("interval"):
                stem = field.name.removesuffix("interval")
                columns |= {f"{stem}lower": [v[0] for v in values], f"{stem}upper": [v[1] for v in values]}
            elif field.name != "is_detail":
                columns[field.name] = values
        return pandas.DataFrame(columns)

    def to_json(self, path: str | os.PathLike | None = None) -> str | None:
        """All rows, all parameters and both privacy statements as JSON: text, or a file if ``path`` is given.

        Numbers that do not exist, or are infinite, are null. The text is exactly as private as the comparison.

        Parameters
        ----------
        path : str or path, optional
            An existing file is replaced when the new one is complete.
        """
        parameters = [
            dict(zip(columns, values, strict=True))
            for columns in (movement.columns() for movement in self.movements)
            for values in zip(*(list(column) for column in columns.values()), strict=True)
        ]
        names = "model", "summary", "private", "baseline", "clip_biases", "level", "notes"
        plain = {name: getattr(self, name) for name in names} | {
            "rows": [asdict(row) for row in self.rows],
            "parameters": parameters,
            "source_of_parameters": self.source,
            "privacy": [report.to_dict() for report in self.privacy],
        }
        return text_or_file(finite(plain), path)

    def plot(self, n: int = 30, ax: Axes | None = None) -> Figure:
        """Plot the differences of means of the largest movers, with intervals for two independent posteriors.

        Parameters
        ----------
        n : int
        ax : matplotlib.axes.Axes, optional
            None makes a new figure.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        ImportError
            Without matplotlib.
        """
        imported("matplotlib", "plot()")
        from matplotlib.figure import Figure

        movers = sorted(self.movers(n), key=lambda mover: mover.difference)
        if ax is None:
            ax = Figure(figsize=(7.0, 1.2 + 0.25 * len(movers)), layout="constrained").subplots()
        differences, places = [mover.difference for mover in movers], np.arange(len(movers))
        deviations = np.hypot([mover.private_std for mover in movers], [mover.baseline_std for mover in movers])
        style = {"fmt": "o", "markersize": 4, "linewidth": 1, "color": "#20639b"}
        ax.errorbar(differences, places, xerr=ndtri(0.5 + 0.5 * self.level) * deviations, **style)
        ax.axvline(0.0, color="0.7", linewidth=1, zorder=0)
        ax.set_yticks(places, [printable(mover.name) for mover in movers], **PLAIN_TEXT)
        ax.set_xlabel(f"posterior mean, private minus baseline; {100.0 * self.level:g} % interval")
        title = f"{self.private} against {self.baseline}\ncomputed from {self.source}"
        ax.set_title(title, fontsize="medium", **PLAIN_TEXT)
        return ax.figure

    def to_html(
        self,
        path: str | os.PathLike,
        *,
        curve: UtilityCurve | None = None,
        ledger: PrivacyLedger | None = None,
        dataset: str = "",
        purpose: str = "",
        responsible: str = "",
        chosen_by: str = "",
        reason: str = "",
    ) -> None:
        """Write a report for somebody who has to judge the fit: one HTML file that needs no network.

        Its first page is the certificate of the private fit (:meth:`vips.PrivacyReport.to_html`), with the joint ε of all fits
        that the report shows. Then: what was fitted, the privacy statements and what ε means in plain words, ε against δ, all
        rows, both posteriors side by side. Every number states its source, and the report begins by stating whether any number
        is not protected.

        Parameters
        ----------
        path : str or path
            An existing file is replaced when the new one is complete.
        curve : UtilityCurve, optional
            From :func:`vips.privacy_utility_curve`: adds scores at other ε.
        ledger : PrivacyLedger, optional
            The ledger of the data set: adds its total.
        dataset, purpose, responsible, chosen_by, reason : str
            For the first page; see :meth:`vips.PrivacyReport.to_html`.

        Raises
        ------
        ImportError
            Without matplotlib or Jinja2.
        TypeError
            If ``curve``, ``ledger`` or a text is something else.
        OSError
            If the file cannot be written; an existing file is then unchanged.

        Privacy
        -------
        The file is exactly as private as the comparison.
        """
        if curve is not None and not isinstance(curve, UtilityCurve):
            raise TypeError(f"`curve` must be a result of privacy_utility_curve(...), got {type(curve).__name__}.")
        for library in ("jinja2", "matplotlib"):
            imported(library, "to_html()")
        from vips.tools.comparison.page import write_report

        write_report(
            self, path, curve, ledger, dataset=dataset, purpose=purpose, responsible=responsible, chosen_by=chosen_by,
            reason=reason,
        )  # fmt: skip

    def __str__(self) -> str:
        sections = [paragraph(self), table([row for row in self.rows if not row.is_detail])]
        return "\n\n".join([*sections, *notes(self)])

    def _repr_html_(self) -> str:
        """For notebooks."""
        rows = [table_cells(row) for row in self.rows if not row.is_detail]
        return html_table(paragraph(self), HEADS, rows, notes(self))

    def __repr__(self) -> str:
        return printable(f"<Comparison of {self.model}: {self.private} against {self.baseline}, {len(self.rows)} rows>")

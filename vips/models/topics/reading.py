"""Methods for people who read topics: words, a page, a figure, arguments of pyLDAvis."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, overload

import numpy as np
from sklearn.utils.validation import check_is_fitted

from vips._support.extras import imported
from vips._support.pipelines import model_of
from vips._support.printable import PLAIN_TEXT, printable, strings_for_pandas
from vips._support.validation import check_integer
from vips.models.topics.evidence import TopicEvidence, topic_evidence
from vips.models.topics.words import TopicWords, check_relevance
from vips.parts import warn_of_no_intervals
from vips.report.words import whose

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ReadableTopics"]

_N_COLUMNS = 5  # of panels


class ReadableTopics:
    """What a topic model shows to its readers. Everything is computed from its posterior and its privacy statement."""

    _evidence: tuple = (None, None)  # the posterior that was asked about last, and its evidence

    def evidence(self) -> TopicEvidence | None:
        """Which topics are real, doubtful or noise; None for a fit without noise, for a single topic and with public documents,
        whose topics are known.

        Each topic is compared with those of fits to generated documents without topics, under as much noise; those of a stream
        with topics of generated streams. Only released numbers are used, so that this costs no budget. The first call takes
        seconds.
        """
        check_is_fitted(self, "last_posterior_")
        has_noise = hasattr(self, "noisy_totals_") and self.is_private  # streams have totals without noise, too
        if not has_noise or self.n_components == 1 or self.public_documents is not None:
            return None
        if self._evidence[0] is not self.last_posterior_:
            self._evidence = self.last_posterior_, topic_evidence(self)
        return self._evidence[1]

    def findings(self) -> dict[str, float]:
        """How many topics are real, and how far the released totals are from those of the match."""
        evidence = self.evidence()
        real = {} if evidence is None else {"number of real topics": float(evidence.labels.count("real"))}
        return real | super().findings()

    @overload
    def top_words(
        self, n: int = 10, *, relevance: float = 1.0, as_frame: Literal[False] = False
    ) -> list[list[str]]: ...
    @overload
    def top_words(self, n: int = 10, *, relevance: float = 1.0, as_frame: Literal[True]) -> pd.DataFrame: ...
    def top_words(
        self, n: int = 10, *, relevance: float = 1.0, as_frame: bool = False
    ) -> list[list[str]] | pd.DataFrame:
        """The ``n`` most relevant words of each topic, most relevant first.

        Parameters
        ----------
        n : int
        relevance : float
            λ from 0 to 1: words are ranked by ``λ log φ_kv + (1 - λ) log(φ_kv / p_v)``, with φ_kv the probability of word v in
            topic k and p_v its frequency over all topics (Sievert and Shirley 2014). 1 ranks by probability; 0 by lift, which
            prefers rare words.
        as_frame : bool
            Give a table, which needs pandas.

        Returns
        -------
        list of list of str, or pandas.DataFrame
            A table has a row for each topic and word: "topic" (its row in ``components_``), "word", "probability" (φ_kv),
            "overall" (p_v) and "share" (of the topic in the word's uses). For private fits of several topics it has
            "label" too: see :meth:`evidence`.

        Raises
        ------
        ValueError
            If ``n`` is not a positive integer or ``relevance`` not between 0 and 1.
        """
        check_integer("n", n)
        check_relevance(n, relevance)
        words = TopicWords.of_model(self)
        top = words.top(n, relevance)
        if not as_frame:
            return [[words.names[v] for v in row] for row in top]
        pd = imported("pandas", "top_words(as_frame=True)")

        topics, columns = np.repeat(np.arange(len(top)), top.shape[1]), top.ravel()
        evidence = self.evidence()
        labels = {} if evidence is None else {"label": [evidence.labels[k] for k in topics]}
        return pd.DataFrame(
            {
                "topic": topics,
                "word": strings_for_pandas([words.names[v] for v in columns]),
                "probability": words.probabilities[topics, columns],
                "overall": words.overall[columns],
                "share": words.of_word[topics, columns],
                **labels,
            }
        )

    def summary(self, n_words: int = 5, level: float = 0.95) -> pd.DataFrame:
        """A table of the topics, the largest first.

        Parameters
        ----------
        n_words : int
            Number of words that are named for each topic.
        level : float
            Of the intervals.

        Returns
        -------
        pandas.DataFrame
            A row for each topic, by its row in ``components_``. "share" of all words; of a private fit of several topics its
            "label" (:meth:`evidence`); "top words", each with its probability in ``posterior_`` and, where intervals know the
            noise, their limits in brackets.

        Raises
        ------
        ValueError
            If ``n_words`` is not a positive integer.

        Warns
        -----
        PrivacyWarning
            If there are no limits in a private fit: it says why.
        """
        pd = imported("pandas", "summary()")
        check_integer("n_words", n_words)
        check_is_fitted(self, "last_posterior_")
        warn_of_no_intervals(self)
        words, posterior, evidence = TopicWords.of_model(self), self.posterior_, self.evidence()
        means, has_limits = np.atleast_2d(posterior.mean), self.is_private and not self.why_no_intervals()
        lower, upper = map(np.atleast_2d, posterior.interval(level)) if has_limits else (means, means)

        def told(k: int, v: int) -> str:
            limits = f" ({lower[k, v]:.2g} to {upper[k, v]:.2g})" if has_limits else ""
            return f"{words.names[v]} {means[k, v]:.2g}{limits}"

        top = np.argsort(-means, axis=1, kind="stable")[:, :n_words]
        columns = {"share": words.shares} | ({} if evidence is None else {"label": evidence.labels})
        columns["top words"] = strings_for_pandas([", ".join(told(k, v) for v in row) for k, row in enumerate(top)])
        table = pd.DataFrame(columns, index=pd.Index(range(len(means)), name="topic"))
        table = table.rename_axis(columns=whose(getattr(self, "privacy_", None)))
        return table.sort_values("share", ascending=False, kind="stable")

    def to_html(self, path: str | os.PathLike, *, baseline=None, n_words: int = 10) -> None:
        """Write a page about the topics: one HTML file that needs no network.

        It begins with the guarantee of the fit, says which topics are real, doubtful or noise (:meth:`evidence`), and lists the
        most probable words of each. :meth:`to_pyldavis` is for a map of the topics.

        Parameters
        ----------
        path : str or path
            An existing file is replaced when the new one is complete.
        baseline : LatentDirichletAllocation or pipeline that ends with one, optional
            Another fit with the same number of topics and the same words. Its topics are matched and shown beside these.
        n_words : int
            Number of words that are shown of a topic.

        Raises
        ------
        ImportError
            Without Jinja2.
        TypeError
            If ``baseline`` is not a topic model.
        ValueError
            If ``n_words`` is not a positive integer, or ``baseline`` has other words or another number of topics.
        OSError
            If the file cannot be written; an existing file is then unchanged.

        Privacy
        -------
        The file holds values computed from ``last_posterior_``, and the share of signal in ``noisy_totals_``: it is as private
        as the fits that it shows. It says so where one of them has no guarantee.
        """
        check_is_fitted(self, "last_posterior_")
        check_integer("n_words", n_words)
        other = None if baseline is None else model_of(baseline)
        if other is not None:
            if not isinstance(other, ReadableTopics):
                raise TypeError(f"`baseline` must be a LatentDirichletAllocation, got {type(other).__name__}.")
            check_is_fitted(other, "last_posterior_")
            ours, theirs = self.components_.shape, other.components_.shape
            if ours != theirs:
                raise ValueError(
                    f"The model has {ours[0]} topics over {ours[1]} words and `baseline` {theirs[0]} over {theirs[1]}: topics "
                    "are matched one to one, so that both need the same numbers."
                )
            if self.column_names() != other.column_names():
                raise ValueError("`baseline` has other words than the model, or the same words in another order.")
        imported("jinja2", "to_html()")
        from vips.models.topics.page import write_topics

        write_topics(path, [self] if other is None else [self, other], n_words)

    def plot_topics(
        self, n_words: int = 10, *, topics: Sequence[int] | None = None, relevance: float = 1.0, axes=None
    ) -> np.ndarray:
        """Bars of the most relevant words, a panel for each topic: probability in the topic, and over all topics in grey.

        The title of a panel says whether the topic is real, doubtful or noise; topics of noise are grey. See :meth:`evidence`.

        Parameters
        ----------
        n_words : int
        topics : sequence of int, optional
            Rows of ``components_``. None: all.
        relevance : float
            λ; see :meth:`top_words`.
        axes : sequence of matplotlib.axes.Axes, optional
            One for each topic.

        Returns
        -------
        ndarray of matplotlib.axes.Axes
            One for each topic.

        Raises
        ------
        ImportError
            Without matplotlib.
        ValueError
            If an argument is out of range, or there are fewer axes than topics.
        """
        check_is_fitted(self, "last_posterior_")
        check_relevance(n_words, relevance)
        topics = list(range(self.n_components)) if topics is None else list(topics)
        if not topics:
            raise ValueError("`topics` must name at least one topic.")
        for topic in topics:
            check_integer("topics", topic, 0, self.n_components - 1)
        evidence, words = self.evidence(), TopicWords.of_model(self)
        try:
            import matplotlib.pyplot as plt
        except ImportError as error:
            raise ImportError(
                "plot_topics() needs matplotlib: pip install 'vips[plot]'. `top_words()` does not."
            ) from error
        top = words.top(n_words, relevance)
        if axes is None:
            n_columns = min(_N_COLUMNS, len(topics))
            n_rows = -(-len(topics) // n_columns)
            size = (2.4 * n_columns, n_rows * (0.7 + 0.2 * top.shape[1]))
            _, grid = plt.subplots(n_rows, n_columns, figsize=size, layout="constrained", squeeze=False)
            for unused in grid.ravel()[len(topics) :]:
                unused.remove()
            axes = grid.ravel()[: len(topics)]
        axes = np.ravel(np.asarray(axes, dtype=object))
        if len(axes) < len(topics):
            raise ValueError(f"There are {len(topics)} topics and only {len(axes)} axes.")
        for ax, topic in zip(axes, topics, strict=False):
            _draw(ax, words, topic, top[topic], None if evidence is None else evidence.labels[topic])
        return axes[: len(topics)]

    def to_pyldavis(self) -> dict[str, object]:
        """Arguments of ``pyLDAvis.prepare``, from released values: ``pyLDAvis.prepare(**model.to_pyldavis())``.

        pyLDAvis uses documents only to add up the share of each topic. So these arguments hold one row in place of all
        documents: the released shares and the released number of words. No document is in it. pyLDAvis numbers topics from 1,
        by share; pass ``sort_topics=False, start_index=0`` to keep their numbers.

        Returns
        -------
        dict
            "topic_term_dists" (n_topics, n_words), "doc_topic_dists" (1, n_topics), "doc_lengths" (1,), "vocab" and
            "term_frequency" (n_words,).
        """
        words = TopicWords.of_model(self)
        return {
            "topic_term_dists": words.probabilities,
            "doc_topic_dists": words.shares[None, :],
            "doc_lengths": np.array([words.total]),
            "vocab": list(words.names),
            "term_frequency": words.total * words.overall,
        }


def _draw(ax, words: TopicWords, topic: int, shown: np.ndarray, label: str | None) -> None:
    """Bars of one topic."""
    places = np.arange(len(shown))[::-1]
    color = "0.55" if label == "noise" else "#20639b"
    ax.barh(places, words.probabilities[topic, shown], height=0.75, color=color)
    ax.barh(places, words.overall[shown], height=0.25, color="0.72")
    ax.set_yticks(places, [printable(words.names[v]) for v in shown], fontsize="small", **PLAIN_TEXT)
    share = f"{100.0 * words.shares[topic]:.3g} % of words"
    ax.set_title(f"topic {topic}: {share}" + ("" if label is None else f", {label}"), fontsize="medium")
    ax.set_xlabel("probability (grey: over all topics)", fontsize="x-small")
    ax.tick_params(axis="x", labelsize="x-small")
    ax.tick_params(axis="y", length=0)
    ax.locator_params(axis="x", nbins=3)
    ax.spines[["top", "right"]].set_visible(False)

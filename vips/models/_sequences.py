"""What all models of sequences share: what ``fit`` takes for sequences, and how they are checked."""

from __future__ import annotations

import os
from abc import abstractmethod
from typing import Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from vips._support.fitted import all_or_nothing
from vips._support.validation import check_integer
from vips.core.ledger.ledger import PrivacyLedger
from vips.core.records.arrays import InMemoryData
from vips.core.records.checks import check_container
from vips.core.records.source import DataSource
from vips.core.records.tables import from_arrow
from vips.data._cell_values import kind_of
from vips.data._columns import is_frame
from vips.data._dask import is_dask
from vips.data._sequence_source import SequenceSource, steps_of_persons
from vips.data._sequences import Sequences
from vips.data._steps import check_readable, numbers_of
from vips.data._texts import TextSource
from vips.model import ConjugateExponentialModel
from vips.parts import Score, average

__all__ = ["SequenceModel", "declared_of_steps", "state_names"]

_LEAST = 1e-300


class SequenceModel(ConjugateExponentialModel):
    """A model whose record is a whole sequence. A subclass has ``max_length``, a public number, and ``n_features``.

    Steps are taken as equally spaced in time: a gap is one where missing steps fill it, as ``every`` of
    :meth:`vips.data.Sequences.from_frame` does. States and forecasts of ``Sequences`` of a data frame are data frames, with id
    and time in their index; those of other containers are arrays.
    """

    ignores_labels = True
    n_features: int | None = None  # columns of every sequence, where they are declared
    name_of_score = "log likelihood per step"
    n_components: int
    max_length: int
    _unlisted = ("n_features", "sequences_of", "steps_read")

    @all_or_nothing
    def fit(
        self,
        X,
        lengths=None,
        *,
        ledger: PrivacyLedger | None = None,
        checkpoint: str | os.PathLike | None = None,
        executor: object = None,
        groups: object = None,
    ) -> Self:
        """Fit by (private) stochastic variational Bayes.

        Parameters
        ----------
        X : Sequences, list of arrays, or array of shape (n_steps, n_features); or a source of sequences
            An array holds the steps of all sequences, one sequence after the other. A private fit to a list needs the model's
            ``n_features``: a sequence with another number of columns is then a missing one. Sources are a ``SequenceSource``,
            and what ``regroup`` wrote, of which all sequences of a person, or all rows, are one record.
        lengths : array of int, shape (n_sequences,), optional
            Of the sequences in an array. None: the array is one sequence, which only a fit without privacy takes.
        ledger, checkpoint, executor
            As for all models.
        groups : array, series or list of length n_sequences, optional
            Ids of persons: all sequences with one id are then one record.

        Returns
        -------
        self
        """
        return super().fit(X, lengths, ledger=ledger, checkpoint=checkpoint, executor=executor, groups=groups)

    def valid_records(self, records: Sequences) -> np.ndarray:
        """All of them: what is no observation is a missing one."""
        return np.ones(len(records), dtype=bool)

    def default_chunk_size(self) -> int:
        """Steps of a chunk, or those of one longer sequence. Many sequences may have one step, and each has K² moves."""
        return int(np.clip(2**22 // self.n_components**2, 1_024, 65_536))

    def held_out_scores(self, X, y=None) -> list[Score]:
        """Log likelihood per step, or its lower bound."""
        records = self.sequences_of(X, None)
        scores, lengths = self._log_likelihood(records), records.lengths
        return [
            Score(
                f"{self.name_of_score} (higher is better)",
                lambda counts: average(counts, scores) / np.maximum(average(counts, lengths), _LEAST),
            )
        ]

    def score_samples(self, X, lengths=None) -> np.ndarray:
        """Log likelihood of each sequence at the posterior's means, or its lower bound, in nats, shape (n_sequences,)."""
        return self._log_likelihood(self.sequences_of(X, lengths))

    def score(self, X, lengths=None) -> float:
        """Mean of :meth:`score_samples`."""
        return float(self.score_samples(X, lengths).mean())

    @abstractmethod
    def _log_likelihood(self, records: Sequences) -> np.ndarray:
        """Log likelihood of each sequence under the fitted posterior, or its lower bound; shape (n_sequences,)."""

    def records_of(self, X, lengths) -> DataSource:
        """Sequences in memory, or a source of them."""
        source = X if isinstance(X, DataSource) else InMemoryData(self.sequences_of(X, lengths, in_fit=True))
        if source.has_groups and not isinstance(source, InMemoryData | SequenceSource | TextSource):
            source = steps_of_persons(source)
        in_memory = isinstance(source, InMemoryData) and isinstance(source.arrays[0], Sequences)
        if not in_memory and not isinstance(source, SequenceSource):
            raise TypeError(
                f"{type(self).__name__} takes sequences, got {type(X).__name__}: pass vips.data.Sequences, a list of arrays, "
                "X and lengths, or a source of sequences."
            )
        if self.n_features not in (None, source.n_features):
            raise ValueError(f"Sequences have {self.n_features} column(s) by declaration, X has {source.n_features}.")
        self.n_features_in_ = source.n_features
        if in_memory and not self.is_private:
            self.check_values(source.arrays[0], None)
        return source

    def check_values(self, X: Sequences, y) -> None:
        """Raise ValueError for a step that is neither missing nor what the model reads."""
        is_read, what = self.steps_read(X.values)
        unread = X.values[~(is_read | np.isnan(X.values))]
        if len(unread):
            first_odd = repr(float(unread[0])).removesuffix(".0")
            raise ValueError(f"X holds {first_odd}, but steps are {what}: write None or NaN for a missing one.")

    def steps_read(self, values: np.ndarray) -> tuple[np.ndarray, str]:
        """Which of these numbers are steps, and not missing; and what steps are, in words."""
        return np.isfinite(values), "finite numbers"

    def sequences_of(self, X, lengths, in_fit: bool = False) -> Sequences:
        """What users pass, as sequences. A private fit looks at containers and dtypes only."""
        if not in_fit:
            check_is_fitted(self, "last_posterior_")
        if isinstance(X, Sequences):
            if lengths is not None:
                raise TypeError("Sequences have their lengths: pass them without `lengths`.")
            steps = X.index_of_steps
            if in_fit and not self.is_private and steps is not None and steps.n_unread:
                raise ValueError(
                    f"Column {steps.names[1]!r} holds {steps.n_unread:,} cells that are not written as `date_format` says: "
                    "mend them, or write None or NaN where a date is missing."
                )
            sequences = X.without_ids()
        elif isinstance(X, DataSource):
            raise TypeError(
                f"{type(X).__name__} is read by `fit` alone: take the sequences of a source some at a time, e.g. "
                "[model.predict(some) for some in source.chunks(100_000)], which has so many steps in memory."
            )
        elif is_dask(X):
            raise TypeError(
                "Pass parts of Dask as vips.data.SequenceSource.from_dask(parts); and of a collection with a row for each step "
                'what vips.data.regroup(X, by="patient", order="date", to="a_new_folder") returns.'
            )
        elif is_frame(X) or hasattr(X, "column_names"):
            raise TypeError(
                "A table of steps needs the columns of ids and of order: pass "
                'vips.data.Sequences.from_frame(X, by="patient", order="date", columns=["event"]).'
            )
        elif lengths is not None:
            if in_fit and self.is_private:
                check_container(X, "X")
            sequences = Sequences.from_lengths(self._steps(X), lengths)
        elif isinstance(X, list | tuple):
            sequences = Sequences.from_list(X, self._width_of_lists() if in_fit else self.n_features_in_)
            if not self.is_private:
                check_readable(X, sequences.shape[1])
        elif in_fit and self.is_private:
            raise ValueError(
                "An array without `lengths` is one sequence, hence one record, which privacy hides whole. Pass `lengths`, or a "
                "list of arrays."
            )
        else:
            X = self._steps(X)
            sequences = Sequences(X, np.array([0, len(X)]))
        if not in_fit and sequences.shape[1] != self.n_features_in_:
            raise ValueError(f"X has {sequences.shape[1]} columns, but {self.n_features_in_} were fitted.")
        if not in_fit and not self.is_private:
            self.check_values(sequences, None)
        return sequences

    def _steps(self, X) -> np.ndarray:
        """An array of steps, with NaN for what is missing. A dtype that holds no numbers, but for objects, is refused."""
        X = from_arrow(X)
        dtype = getattr(X, "dtype", np.dtype(object))
        if str(dtype) != "object" and kind_of(dtype) not in ("number", "flag"):
            raise TypeError(
                f"Steps of {type(self).__name__} are numbers, but X has dtype {dtype}: encode words as codes from 0 on, e.g. "
                "pandas.Series(X).map(codes).to_numpy(float) with a public dict of the words' codes."
            )
        if not self.is_private:
            check_readable([X])
        steps = numbers_of(X)
        return np.asarray(X) if steps is None else steps

    def _width_of_lists(self) -> int | None:
        """Declared: the arrays of private sequences may have different widths, and one of them must not decide. None: read."""
        if self.n_features is not None:
            check_integer("n_features", self.n_features)
        elif self.is_private:
            raise ValueError(
                "A private fit to a list needs the number of columns, which would depend on a record otherwise: write "
                f"{type(self).__name__}(..., n_features=1), say, or pass an array and `lengths`."
            )
        return self.n_features


def declared_of_steps(model) -> str:
    """What a fit takes for granted about steps."""
    return f"sequences of at most {model.max_length} steps, which are taken as equally spaced in time"


def state_names(n_components: int) -> list[str]:
    """Names of the states, in their order."""
    return [f"state {k}" for k in range(n_components)]

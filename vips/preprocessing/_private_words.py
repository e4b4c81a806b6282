"""Counts of words whose vocabulary is learnt privately from the documents."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import count, groupby
from types import MappingProxyType
from typing import Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from vips._support.arguments import arguments
from vips._support.fitted import all_or_nothing, forget_fit
from vips._support.no_warnings import without_warnings
from vips._support.validation import check_integer, check_number
from vips.core.budget import PrivacyBudget
from vips.core.ledger.ledger import PrivacyLedger, charged, delta_for_threshold, ledger_to_charge
from vips.core.plan import PrivacyPlan
from vips.data._texts import InMemoryTexts, TextSource
from vips.executors import resolve as executors
from vips.persistence.settings import decode, encode
from vips.preprocessing import _encoder as shared
from vips.preprocessing._documents import (
    Analyser,
    CountedTexts,
    as_documents,
    chunks_of,
    counted_records,
    counts_of_words,
)
from vips.preprocessing._encoder import SavableEncoder
from vips.preprocessing._set_union import MOST_WORDS, Release, Round, Union, noisy_union, rounds_of, std_of_count
from vips.preprocessing._sorted_words import union_of_source
from vips.report.report import PrivacyReport

__all__ = ["PrivateCountVectorizer"]

_OF_WORDS = (
    "analyzer", "lowercase", "strip_accents", "stop_words", "token_pattern", "ngram_range", "preprocessor", "tokenizer",
)  # fmt: skip
_MOST = 100_000  # largest ``max_words``


@arguments
class PrivateCountVectorizer(TransformerMixin, SavableEncoder, BaseEstimator):
    """Counts of the words that many documents hold; the vocabulary is learnt privately.

    scikit-learn's :class:`~sklearn.feature_extraction.text.CountVectorizer`, whose vocabulary shows rare words: names, say.

    Parameters
    ----------
    privacy : PrivacyBudget or PrivacyPlan
        Of this release. A plan is one step, ``PrivacyPlan(..., sampling="full", n_steps=1)``, with Gaussian noise and without
        ``clip_norm``.
    threshold_delta : float or None
        Beside a plan: probability, at most, that any word is released which a single record holds. It adds to the plan's δ. A
        budget holds its own.
    max_words : int
        A record with more distinct words contributes a random subset of this size.
    max_features : int or None
        Keep the words with the largest noisy totals only; phrases come last.
    count_records : bool
        Release a noisy number of records, too, in the same vector of norm 1: words weigh 2 % less in the first round.
    analyzer, lowercase, strip_accents, stop_words, token_pattern, ngram_range, preprocessor, tokenizer
        As in ``CountVectorizer``. A list of stop words, or "english", is public. Phrases of ``ngram_range`` are of released
        words, and have rounds of their own, for two fifths of the budget: words lose no more than that.

    Attributes
    ----------
    vocabulary_ : dict of str to int
        Words in alphabetical order, with their columns.
    n_records_ : float or None
        Noisy number of records, if it was counted.
    round_totals_ : tuple of float
        Sums of the noisy totals of the words that each round released.
    privacy_ : PrivacyReport

    Notes
    -----
    *Privacy.*
    Unit: one document; with ``groups``, all documents of one id. Released: the words of ``vocabulary_``, and those that its
    phrases consist of. Guarantee: that of the plan, with ``threshold_delta`` added to δ; docs/guarantee.md has the proof.
    Public: all arguments. You promise that a function among them treats each document alone. Not covered: choosing arguments
    by looking at the documents; ``transform`` of the fitted documents, whose counts are private.

    *Guarantees.*

    - Everything is charged to the ledger before a document is read.
    - No document causes an error or a warning. What is no text (None, NaN) has no words.

    Examples
    --------
    >>> from vips import PrivacyBudget
    >>> from vips.preprocessing import PrivateCountVectorizer
    >>> letters = ["the ship sails home", "a storm at sea", "the ship was lost at sea"] * 500 + ["Amalie owes me ten crowns"]
    >>> words = PrivateCountVectorizer(privacy=PrivacyBudget(0.5, 1e-7), stop_words="english").fit(letters)
    >>> words.get_feature_names_out().tolist()
    ['home', 'lost', 'sails', 'sea', 'ship', 'storm']
    >>> words.transform(["ship to ship"]).toarray().tolist()
    [[0, 0, 0, 0, 2, 0]]
    """

    privacy: PrivacyBudget | PrivacyPlan | None = None
    threshold_delta: float | None = None
    max_words: int = MOST_WORDS
    max_features: int | None = None
    count_records: bool = False
    analyzer: str | Callable = "word"
    lowercase: bool = True
    strip_accents: str | Callable | None = None
    stop_words: str | Sequence[str] | None = None
    token_pattern: str | None = r"(?u)\b\w\w+\b"
    ngram_range: tuple[int, int] = (1, 1)
    preprocessor: Callable | None = None
    tokenizer: Callable | None = None

    unit = "one document"
    _first_round = (), np.zeros(0)  # words and their totals; a file does not keep them
    # Arguments of a model that the encoder supplies if they are None, with values for checks before the fit.
    supplies = MappingProxyType({"vocabulary": 1})
    learns = ("the vocabulary",)  # of what the model's statement calls public by declaration

    def fit(
        self, X, y=None, *, ledger: PrivacyLedger | None = None, groups: object = None, executor: object = None
    ) -> Self:
        """Learn the vocabulary.

        Parameters
        ----------
        X : list, array or series of n_documents strings; or a source of texts
            Of a source (``vips.data.ParquetTexts``, ``TextFiles``, ...) one partition at a time is in memory, and what is not:
            the different words of all documents. Their totals are sorted in temporary files; see Notes.
        y : ignored
        ledger, groups : optional
            See :meth:`TableEncoder.fit`. A person's documents are one record. For sources on disk: :func:`vips.data.regroup`.
        executor : optional
            Counts partitions; see :meth:`ConjugateExponentialModel.fit`. With an executor a list is taken as
            ``InMemoryTexts(X)``.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            From public facts only: arguments, and the container.
        LedgerError
            If the rest of the budget is too small. Nothing is charged then.
        SourceError, PartitionError
            If a part of a source cannot be read or is not as declared, or workers fail.

        Notes
        -----
        Temporary files hold words and totals without noise. They are in the folder that ``tempfile.gettempdir()`` names: set
        TMPDIR to one on a disk, protected as the documents are. They have no names, only their user can read them, and they end
        with the process, however it ends. They take about 20 bytes and the word for each different word of each partition.
        """
        self._learnt(X, ledger, groups, executor)
        return self

    def fit_transform(
        self, X, y=None, *, ledger: PrivacyLedger | None = None, groups: object = None, executor: object = None
    ) -> sp.csr_array | CountedTexts:
        """``fit(X, ...).transform(X)``; documents in memory that are a record each are read once."""
        counts, columns = self._learnt(X, ledger, groups, executor)
        if counts is None:
            return self.transform(X)
        counts = counts[:, columns]
        counts.sort_indices()
        return counts

    @all_or_nothing
    def _learnt(self, X, ledger, groups, executor) -> tuple[sp.csr_array | None, list[int]]:
        """Learn the vocabulary. If documents in memory are a record each: counts of all words, and the places of the learnt."""
        forget_fit(self)
        plan, documents = self.checked_settings(), as_documents(X)
        workers, ledger = executors.resolve(executor), ledger_to_charge(ledger, plan.sent_from, plan=self.privacy)
        if executor is not None and not isinstance(documents, TextSource):
            documents = InMemoryTexts(documents)
        if isinstance(documents, TextSource):
            documents = shared.grouped_texts(documents, groups)
            numbers, unit = None, shared.unit_of_source(documents, plan, self.unit)
        else:
            numbers, unit = shared.persons_of(groups, len(documents), plan, self.unit)
        what = f"{type(self).__name__}: words of the documents"
        delta, settings = self._delta(ledger), (self.max_words, self.count_records)
        rounds, counts = rounds_of(plan, delta, self.max_words, self._longest()), None
        with charged(ledger, what, unit, plan.relation, event=plan, delta=delta) as run:
            if isinstance(documents, TextSource):
                arguments = documents, self._single_words(), rounds, *settings, workers, run.release_once
                union = without_warnings(lambda: union_of_source(*arguments))
            else:
                texts = documents, numbers, plan.max_rows_per_group
                # without warnings of functions among the arguments: they could depend on a document
                union, counts, index = without_warnings(lambda: self._union_of_list(texts, rounds, run.release_once))
        self.vocabulary_, self.round_totals_ = self._chosen(rounds, union.rounds)
        self.n_records_, self._first_round = union.n_records, union.rounds[0]
        self.privacy_ = self._statement(plan, delta, unit, run.entry)
        if counts is None or numbers is not None or self._longest() > 1:
            return None, []
        return counts, [index[word] for word in self.vocabulary_]

    def _union_of_list(self, texts: tuple, rounds: list[Round], release: Release) -> tuple[Union, sp.csr_array, dict]:
        """What each round releases; counts of the words or phrases of the last length, and their numbers."""
        union, n_records, known = [], None, set()
        for length, turns in groupby(rounds, key=lambda turn: turn.length):
            index: defaultdict[str, int] = defaultdict(count().__next__)
            counts = counted_records(self._single_words(), *texts, index, length, known)
            is_counted = self.count_records and length == 1
            part, names = noisy_union(chunks_of(counts), turns, self.max_words, is_counted, release), list(index)
            n_records = part.n_records if is_counted else n_records
            union += [([names[i] for i in places], noisy) for places, noisy in part.rounds]
            known.update(*(words for words, _ in union))
        return Union(tuple(union), n_records), counts, index

    def _statement(self, plan: PrivacyPlan, delta: float, unit: str, entry: dict | None) -> PrivacyReport:
        """What was released and what was declared follows from the settings."""
        rounds = rounds_of(plan, delta, self.max_words, self._longest())
        of_what = ["words"] + ["phrases of released words"] * (len(rounds) > 2)
        noise = " and ".join(f"{turn.plan.noise_std():.4g} and the threshold {turn.cut:.4g}" for turn in rounds)
        mechanism = (
            f"{len(rounds)} rounds of noisy totals of {' and '.join(of_what)}, to which a record "
            f"adds a vector of L2 norm 1 over at most {self.max_words:,} words: Gaussian noise of standard deviation {noise} "
            f"(noise multiplier of all together {plan.noise_multiplier:.4g}); a word that one record alone holds is released "
            f"with probability at most {delta:g}"
        )
        released = (*of_what, "the number of records") if self.count_records else tuple(of_what)
        return shared.report_of_encoder(self, plan, delta, unit, released, self._declared(), mechanism, entry)

    def _delta(self, ledger: PrivacyLedger | None) -> float:
        """δ of the thresholds of all rounds."""
        stated = self.threshold_delta
        return delta_for_threshold(self.privacy.delta_0, ledger) if stated is None else float(stated)

    def learns_columns(self, X) -> bool:
        """Words are always learnt."""
        return True

    def has_threshold(self, X) -> bool:
        """Whether rare values are to be hidden: always; raises what ``fit`` would raise because of X."""
        as_documents(X)
        return True

    def checked_settings(self) -> PrivacyPlan:
        """The plan with its clip norm; raises TypeError or ValueError for an invalid argument."""
        Analyser(self._settings())
        check_integer("max_words", self.max_words, high=_MOST)
        if self.max_features is not None:
            check_integer("max_features", self.max_features)
        if not isinstance(self.count_records, bool):
            raise TypeError(f"`count_records` must be True or False, got {self.count_records!r}.")
        plan = shared.checked_plan(self.privacy, 1)
        if isinstance(self.privacy, PrivacyBudget) and self.threshold_delta is None:
            return plan
        if self.threshold_delta is None:
            raise ValueError(
                "Words are to be learnt: write `threshold_delta`, e.g. a tenth of the δ of the plan, or count declared words "
                "with CountVectorizer(vocabulary=words)."
            )
        check_number("threshold_delta", self.threshold_delta, 1e-100, 0.1, "between 1e-100 and 0.1")
        return plan

    def transform(self, X) -> sp.csr_array | CountedTexts:
        """Counts of each document's words, from that document and released words alone.

        Parameters
        ----------
        X : list, array or series of n_documents strings; or a source of texts

        Returns
        -------
        CSR of shape (n_documents, n_words), int64; or a data source for a model's ``fit``, which counts the words of a
        partition whenever it is opened, and those of ``regrouped`` texts once.
        """
        check_is_fitted(self, "vocabulary_")
        documents = as_documents(X)
        if isinstance(documents, TextSource):
            return CountedTexts(documents, self._settings(), self.vocabulary_)
        return counts_of_words(self._settings(), self.vocabulary_, documents)

    def get_feature_names_out(self, input_features: object = None) -> np.ndarray:
        """The words, shape (n_words,)."""
        check_is_fitted(self, "vocabulary_")
        return np.array(list(self.vocabulary_), dtype=object)

    @property
    def n_features_out(self) -> int:
        """Number of words."""
        return len(self.get_feature_names_out())

    def known_words(self, n_records: float, n_different: float) -> float:
        """About how many of the learnt words a record holds, if it holds ``n_different`` words in all; from released totals.

        A record with n unknown words adds 1/√n to the total of each.
        """
        words = phrases = 0.0
        for number, total in enumerate(self.round_totals_):
            most = n_different - words if number < 2 else words  # a known word begins one phrase, say
            unknown = min(max(most, 1.0), self.max_words)
            new = min(max(total, 0.0) * math.sqrt(unknown) / max(n_records, 1.0), max(most, 0.0))
            words, phrases = (words + new, phrases) if number < 2 else (words, phrases + new)
        return min(phrases + (words if self._shortest() == 1 else 0.0), len(self.vocabulary_))

    def frequent_words(self, n_records: float, n_different: float, share: float) -> list[str]:
        """Words that about this share of the records hold, or more, if a record holds ``n_different``; the most frequent first.

        From released totals of the first round; empty for a vocabulary that was read from a file.
        """
        words, totals = self._first_round
        shares = totals * math.sqrt(min(n_different, self.max_words)) / max(n_records, 1.0)
        return [words[i] for i in np.argsort(-shares, kind="stable") if shares[i] >= share]

    @property
    def n_records_std(self) -> float:
        """Standard deviation of the noise in ``n_records_``; a public number."""
        check_is_fitted(self, "privacy_")
        return std_of_count(self.privacy_.plan, self._longest())

    @property
    def vocabulary(self) -> list[str]:
        """The words, as a model's argument ``vocabulary``."""
        return self.get_feature_names_out().tolist()

    def _settings(self) -> dict:
        return {name: getattr(self, name) for name in _OF_WORDS}

    def _longest(self) -> int:
        """Number of words of the longest phrases that have rounds of their own."""
        return self.ngram_range[1] if self.analyzer == "word" else 1

    def _shortest(self) -> int:
        """Number of words of the shortest entries of the vocabulary."""
        return min(self.ngram_range[0], self._longest())

    def _single_words(self) -> dict:
        """Settings by which rounds read documents."""
        return self._settings() | ({"ngram_range": (1, 1)} if self._longest() > 1 else {})

    def _declared(self) -> tuple[str, ...]:
        """Arguments that say what a word is, and are not at their defaults."""
        default, settings = type(self)().get_params(deep=False), self._settings().items()
        changed = [name for name, value in settings if (type(value), value) != (type(default[name]), default[name])]
        return (f"what a word is ({', '.join(changed)})",) if changed else ()

    def _chosen(
        self, rounds: Sequence[Round], union: Sequence[tuple[Sequence[str], np.ndarray]]
    ) -> tuple[dict[str, int], tuple[float, ...]]:
        """The vocabulary, and the totals of its words in each round. Words of the first round have larger totals."""
        words, totals, left = [], [], self.max_features
        for turn, (names, noisy) in zip(rounds, union, strict=True):
            is_shown = turn.length >= self._shortest()
            kept = np.argsort(-noisy, kind="stable")[: left if is_shown else None]
            totals.append(math.fsum(noisy[kept]))  # in any order the same: documents decide the order of words
            if is_shown:
                words += [names[i] for i in kept]
                left = None if left is None else left - len(kept)
        return {word: column for column, word in enumerate(sorted(words))}, tuple(totals)

    def learnt_to_json(self) -> dict:
        numbers = {"n_records": encode(self.n_records_), "totals": encode(self.round_totals_)}
        return {"words": list(self.vocabulary_)} | numbers

    def restore_fit(self, values: dict) -> None:
        names = (self.analyzer, self.token_pattern, self.strip_accents)
        if any(not isinstance(setting, str | None) for setting in names) or self.preprocessor or self.tokenizer:
            raise ValueError("what a word is cannot be read from a file here")
        plan = self.checked_settings()
        learnt = values["words"]
        are_texts = isinstance(learnt, list) and all(isinstance(word, str) for word in learnt)
        if not are_texts or sorted(set(learnt)) != learnt:
            raise ValueError("its words are not those that a vocabulary has")
        self.vocabulary_ = {word: column for column, word in enumerate(learnt)}
        self.n_records_ = decode(values["n_records"])
        if (self.n_records_ is not None) != self.count_records or not _are_finite(self.n_records_ or 0.0):
            raise ValueError("its number of records is not a number")
        self.round_totals_ = totals = decode(values["totals"])
        if not isinstance(totals, tuple) or len(totals) != 1 + self._longest() or not _are_finite(*totals):
            raise ValueError("its totals are not a number for each round")
        facts = shared.saved_facts(values["report"], plan, self._delta(None), of_budget=self.threshold_delta is None)
        self.privacy_ = self._statement(plan, *facts)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        tags.non_deterministic = True
        return tags


def _are_finite(*numbers: object) -> bool:
    return all(isinstance(number, float) and math.isfinite(number) for number in numbers)

"""Topics of raw texts, with nothing declared but a budget."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from vips._support.arguments import arguments
from vips._support.fitted import all_or_nothing
from vips._support.validation import check_choice, check_integer, levels_to_user
from vips.core.budget import PrivacyBudget
from vips.core.ledger.ledger import PrivacyLedger
from vips.exceptions import PrivacyWarning
from vips.models import LatentDirichletAllocation
from vips.preprocessing._budget import Budget
from vips.preprocessing._private_pipeline import MadePipeline
from vips.preprocessing._private_words import PrivateCountVectorizer
from vips.preprocessing._set_union import MOST_WORDS, rounds_of

if TYPE_CHECKING:
    from vips.models.topics.planning import TopicsAdvice

__all__ = ["PrivateTopics"]

_MANY = 0.2  # of the documents hold a frequent word
_NEARLY_ALL = 0.4  # of the documents in one of two languages hold a word of its grammar
_ZIPF, _FEW = 7.0, 100  # word r is in a share L/(7 r) of the documents of L words; fewer words come out where few do
_CAUTION = 1.645  # standard deviations: of a normal variable, 95 % is above -1.645


@arguments
class PrivateTopics(MadePipeline):
    """Topics of raw texts: words, number of documents and topics are learnt within one budget.

    A :class:`PrivatePipeline` in which a :class:`PrivateCountVectorizer` learns the words, and a
    :class:`LatentDirichletAllocation` is fitted to their counts. The number of topics follows from the noise, by a public
    rule: where noise hides topics, the fit is the frequencies of words, the best that the budget allows.

    Parameters
    ----------
    n_components : int or None
        Number of topics. None: as many as the noise allows.
    privacy : PrivacyBudget
        Of everything together.
    n_documents : int or None
        About how many documents there are, a public number. None: their number is bought with a small part of the budget.
    document_length : int
        About how many different words a document has. Public; it matters for the number of topics and a warning only.
    purpose : {"reading", "perplexity"}
        Of the topics, if ``n_components`` is None: as many as are mostly real, or as many as predict words best.
    n_steps : int
        Steps of the fit, of all documents each.
    encoder_share : float
        Of the budget (the inverse noise variance), for the words.
    stop_words, token_pattern, ngram_range, max_features
        See :class:`PrivateCountVectorizer`.
    random_state : int, Generator, RandomState or None
        Seeds the initialisation. Noise is never seeded.

    Attributes
    ----------
    advice_ : TopicsAdvice
        Why so many topics, and what to expect of them; ``str()`` says it in words.
    vocabulary_ : list of str
    components_ : ndarray of shape (n_components, n_words)
        See :class:`LatentDirichletAllocation`.
    steps_ : list of (str, step)
        The fitted words and topics.
    privacy_ : PrivacyReport

    Notes
    -----
    *Privacy.*
    Unit: one document; with ``groups``, all documents of one id. Released: words, a noisy number of documents if none was
    declared, and the noisy topic-word totals of every step. All arguments are public.

    Examples
    --------
    >>> from vips import PrivacyBudget, PrivateTopics
    >>> letters = ["the ship sails home", "a storm at sea", "rye and barley", "a field of barley"] * 2000
    >>> topics = PrivateTopics(2, privacy=PrivacyBudget(2.0, 1e-6), document_length=3, random_state=0).fit(letters)
    >>> sorted(topics.vocabulary_)
    ['barley', 'field', 'home', 'rye', 'sails', 'sea', 'ship', 'storm']
    >>> topics.transform(["a ship in a storm"]).shape
    (1, 2)
    >>> round(topics.privacy_.epsilon(), 3)
    2.0
    """

    n_components: int | None = field(default=None, kw_only=False)
    privacy: PrivacyBudget = None
    n_documents: int | None = None
    document_length: int = 100
    purpose: str = "reading"
    n_steps: int = 20
    encoder_share: float = 0.15
    stop_words: str | Sequence[str] | None = "english"
    token_pattern: str = r"(?u)\b\w\w+\b"
    ngram_range: tuple[int, int] = (1, 1)
    max_features: int | None = None
    random_state: object = None

    unit = "one document"

    @all_or_nothing
    def fit(
        self,
        X,
        y=None,
        *,
        ledger: PrivacyLedger | None = None,
        checkpoint: str | os.PathLike | None = None,
        executor: object = None,
        groups: object = None,
    ) -> Self:
        """Learn words, then topics; arguments as in :meth:`PrivatePipeline.fit`.

        Parameters
        ----------
        X : list, array or series of n_documents strings; or a source of texts
        y : ignored

        Returns
        -------
        self
        """
        return super().fit(X, ledger=ledger, checkpoint=checkpoint, executor=executor, groups=groups)

    def perplexity(self, X) -> float:
        """Perplexity per released word of documents that were not fitted; see :meth:`LatentDirichletAllocation.perplexity`."""
        return self._fitted()[-1].perplexity(self[:-1].transform(X))

    @property
    def components_(self) -> np.ndarray:
        """Topics' concentrations, shape (n_components, n_words)."""
        return self._fitted()[-1].components_

    @property
    def vocabulary_(self) -> list[str]:
        """The words."""
        return self._fitted()[0].vocabulary

    @property
    def steps(self) -> list[tuple[str, object]]:
        """What ``fit`` fits copies of."""
        words = PrivateCountVectorizer(
            stop_words=self.stop_words, token_pattern=self.token_pattern, ngram_range=self.ngram_range,
            max_features=self.max_features, count_records=self.n_documents is None,
        )  # fmt: skip
        topics = LatentDirichletAllocation(self.n_components or 2, random_state=self.random_state)
        return [("words", words), ("topics", self.sent(topics))]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        tags.non_deterministic = True
        return tags

    # -- in the fit -----------------------------------------------------------------------------------------------

    def _check_steps(self) -> None:
        for name in ("n_components", "n_documents"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name))
        check_integer("document_length", self.document_length)
        check_choice("purpose", self.purpose, ("reading", "perplexity"))
        super()._check_steps()

    def _give_plans(self, encoder: PrivateCountVectorizer, model: LatentDirichletAllocation, X) -> Budget:
        """Raises ValueError, or warns, if a declared number of documents is too small; before any budget is spent."""
        budget = super()._give_plans(encoder, model, X)
        if self.n_documents is None:
            return budget
        needed = self._needed(budget)
        if needed > self.n_documents:
            raise ValueError(
                f"{self.n_documents:,} documents are too few for ε = {self.privacy.epsilon:.4g}: a word is released if about "
                f"{needed:,.0f} documents of {self.document_length} different words hold it. Nothing was charged. Take a "
                "larger ε, or declare the words: LatentDirichletAllocation(vocabulary=words)."
            )
        if needed > _MANY * self.n_documents:
            warnings.warn(
                f"A word is released only if about {needed:,.0f} of the {self.n_documents:,} documents hold it: few words will "
                "be learnt. A larger ε, a larger `encoder_share` or declared words would help.",
                PrivacyWarning,
                stacklevel=4,
            )
        return budget

    def _needed(self, budget: Budget) -> float:
        """About how many documents hold a word that is released."""
        plan = replace(budget.encoder, clip_norm=1.0)
        rounds = rounds_of(plan, budget.threshold_delta, MOST_WORDS, self.ngram_range[1])
        cut = min(turn.cut for turn in rounds if turn.length == 1)
        return cut * math.sqrt(min(self.document_length, MOST_WORDS))

    def expected(self, n_documents: int) -> str:
        """What the budget brings of so many documents, in words: how many words, and of how many topics.

        Words have a law like Zipf's: word r is in a share c/r of the documents, or in all, with c a seventh of
        ``document_length``.
        """
        self._check_steps()
        (_, encoder), (_, model) = self.steps
        budget = super()._give_plans(encoder, model, [])
        needed, first = self._needed(budget), self.document_length / _ZIPF
        words = int(first * n_documents / needed)
        says = f"A word is released if about {needed:,.0f} of the {n_documents:,} documents hold it: "
        if words < 2 * first:
            return says + "few words, if any. Take a larger ε, or declare the words."
        plan, known = replace(budget.fit, clip_norm=model.default_clip()), first * (1.0 + math.log(words / first))
        topics = model.set_params(vocabulary=words).advice(plan, n_documents, known, self.purpose)
        about = (
            f"about {words:,} words, or a third to twice as many" if words >= _FEW else f"at most about {words:,} words"
        )
        return f"{says}{about}. {topics}"

    def _keep(self, steps: list[tuple[str, object]]) -> None:
        super()._keep(steps)
        words, topics = (step for _, step in steps)
        if self.n_components not in (None, topics.n_components):  # in a file
            raise ValueError("its number of topics is not that of its settings")
        self.advice_ = self._advice(words, topics)

    def _chosen(self, encoder: PrivateCountVectorizer, model: LatentDirichletAllocation) -> dict[str, object]:
        model.set_params(vocabulary=encoder.vocabulary)
        self._warn_of_grammar(encoder)
        return {"n_components": self._advice(encoder, model).n_components} if self.n_components is None else {}

    def _warn_of_grammar(self, encoder: PrivateCountVectorizer) -> None:
        """Warn of words that very many documents hold, as released totals say."""
        words = encoder.frequent_words(self.n_documents or encoder.n_records_, self.document_length, _NEARLY_ALL)
        if words:
            more = f" and {len(words) - 3} more" if len(words) > 3 else ""
            warnings.warn(
                f"{', '.join(map(repr, words[:3]))}{more} are in more than {_NEARLY_ALL:.0%} of the documents, if these have "
                f"about {self.document_length} different words (`document_length`). Is it another language? Such words hide "
                "words of content. Leave them out by a public list (see docs/texts.md): "
                "stop_words=[*sklearn.feature_extraction.text.ENGLISH_STOP_WORDS, *words].",
                PrivacyWarning,
                stacklevel=levels_to_user(),
            )

    def _advice(self, encoder: PrivateCountVectorizer, model: LatentDirichletAllocation) -> TopicsAdvice:
        """From released and declared numbers."""
        plan = replace(model.privacy, clip_norm=model.default_clip())
        n_documents = self.n_documents or encoder.n_records_
        known = encoder.known_words(n_documents, self.document_length)
        if self.n_documents is None:  # a number that most probably is not too large
            n_documents = max(1.0, n_documents - _CAUTION * encoder.n_records_std)
        return model.advice(plan, n_documents, known, self.purpose)

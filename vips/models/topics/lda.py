"""Latent Dirichlet allocation.

    β_k ~ Dirichlet(η)        topics: distributions over words
    θ_d ~ Dirichlet(α)        topic shares of document d
    each word of d: topic z ~ θ_d, then the word ~ β_z

===================  ===============================================
symbol               name
===================  ===============================================
K, V                 ``n_components``, number of words
α, η                 ``doc_topic_prior``, ``topic_word_prior``
λ (K, V)             ``last_posterior_.concentration``, ``components_``
γ (D, K)             ``doc_topic``
s_d (K, V)           block ``topic_word`` of one document
===================  ===============================================

Hoffman, Bach and Blei (2010); private version: section 4 of Park et al. (arXiv:1611.00340). With point estimates of β and θ
it is probabilistic latent semantic analysis (Hofmann 1999).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, check_non_negative

from vips._support.arguments import arguments, choice, function_of_step, number, precision, whole
from vips._support.validation import check_integer, levels_to_user
from vips.core.mechanism.random_state import as_generator
from vips.core.phases import FitPhase, phases_of, step_weight
from vips.core.plan import PrivacyPlan
from vips.core.step_size import PolynomialAveraging, RobbinsMonro
from vips.core.stream_plan import StreamPlan
from vips.core.sums import Block
from vips.exceptions import PrivacyWarning
from vips.expfam import Dirichlet, ScaledDirichlet
from vips.model import ConjugateExponentialModel
from vips.models._likelihood import alternate_words, log_likelihoods, split_words
from vips.models.components.matching.steps import kept_steps
from vips.models.topics.denoising import LARGEST_SCALE, denoise_counts, scale_cells
from vips.models.topics.documents import resample_counts
from vips.models.topics.matching import MOST_PRODUCTS, TopicMatch, match_of, matched_topics
from vips.models.topics.merging import factor_of_plain_average, merged_rows, parents_of, scale_of_merged, single_topic
from vips.models.topics.planning import TopicsAdvice, advise_topics, shows_topics, std_of_average
from vips.models.topics.public_prior import check_public, counts_of_public, denoise_with_public, topics_of_public
from vips.models.topics.reading import ReadableTopics
from vips.models.topics.statistics import (
    DocumentStatistics,
    TopicPosterior,
    canonical,
    undo_scales,
    valid_documents,
    without_zeros,
)
from vips.parts import Part, Score, divided, in_table

__all__ = ["LatentDirichletAllocation"]


_AVERAGING = PolynomialAveraging(power=2.0)  # of the steps of a private fit
_UPDATES, _UPDATES_AT_FIRST, _MOST_UPDATES = 8, 5, 100  # of a document's shares: in a step, in the first, after the fit
# The block of many topics, how many, and their share of the steps: docs/lda.md.
_MANY, _TIMES, _FIRST = "many_topics", 2, 0.4
_NO_PRIOR = 1e-12  # of EM
_prior = partial(number, 1e-100, np.inf, "positive (at least 1e-100) and finite", open_high=True)
_OF_UNUSED = 1e-3  # of the words, for a topic that is not used


@arguments
class LatentDirichletAllocation(
    ReadableTopics, ClassNamePrefixFeaturesOutMixin, TransformerMixin, ConjugateExponentialModel
):
    """Latent Dirichlet allocation fitted by (private) stochastic variational Bayes.

    Parameters
    ----------
    n_components : int
        Number of topics K. Public: choosing it by looking at private documents is not covered by the guarantee.
    doc_topic_prior, topic_word_prior : float or None
        Dirichlet concentrations α and η; None is 1/K.
    inference : {"vb", "em"}
        Variational Bayes, or maximum likelihood of topics and topic shares by EM, which ignores both priors: probabilistic
        latent semantic analysis (pLSA). The same totals are released.
    vocabulary : sequence of str, int or None
        The words, or their number. Required by a private fit: a vocabulary read from documents reveals rare words.
    privacy : PrivacyBudget, PrivacyPlan, StreamPlan or None
        None is a non-private fit: full batch for at most 4,096 documents, else about four stochastic passes.
    schedule : RobbinsMonro, callable or None
        Step sizes: ρ_t as a function of t = 1, 2, …. None: see :meth:`step_size`.
    public_documents : CSR matrix or array of shape (n_public, n_words) or None
        Counts of documents of the same kind that are public. The fit starts from their topics, adds their counts, and denoises
        private counts towards theirs, in proportion to their agreement. That costs no budget. Where noise hides the private
        documents, the model of the public ones is what remains. Such fits have no ``evidence()`` and no intervals yet.
    document_length : int or None
        If given, every training document is resized to this many words. None leaves documents unchanged.
    length_method : {"resample", "scale"}
        By drawing words with replacement (as in the paper; the draws are a fixed function of the document), or by
        multiplying counts.
    max_doc_update_iter : int or None
        Maximum number of updates of a document's topic shares in each step of the fit. None: 5 in the first step, whose topics
        are random or one, then 8; they are accelerated, and more did not improve held-out perplexity (docs/lda.md). Shares and
        scores of documents that are not fitted take 100.
    mean_change_tol : float
        A document has converged when an update moves γ by less than this on average. With 0, ``max_doc_update_iter`` updates.
    on_invalid : {"drop", "raise"}
        What a private fit does with a defective document (NaN, infinite, negative or fractional counts): ignore it,
        or stop. The latter is outside the guarantee. Non-private fits refuse negative and non-finite counts.
    dtype : {numpy.float32, numpy.float64}
        Of the E-step's iteration; sums are always double precision.
    random_state : int, Generator, RandomState or None
        Seeds the initialisation; in non-private fits also the sampling. Noise is never seeded.

    Attributes
    ----------
    posterior_ : TopicPosterior, or ScaledDirichlet of a private fit
        Of the topics; in private fits given that totals are noisy (docs/every_fit.md), which is computed when it is first read.
    last_posterior_ : TopicPosterior
        Dirichlet posterior of the last step, ``concentration`` of shape (n_components, n_words), from which shares and scores
        are computed. With EM its mean is the estimate.
    components_ : ndarray of shape (n_components, n_words)
        Its concentration λ.
    privacy_ : PrivacyReport
    n_features_in_ : int
        Number of words.

    Notes
    -----
    *Privacy.* Unit: one document. Relation: add or remove one. Released: the noisy topic-word totals of every step, hence the
    topics. Public by declaration: the vocabulary and all constructor arguments. Not covered: choosing
    ``n_components`` or any other argument by looking at these documents. ``transform`` and ``perplexity`` of other
    documents are computed from released values and those documents. ``fit_transform`` returns topic shares of the fitted
    documents themselves: these are private data, not released values.

    Examples
    --------
    >>> from vips import LatentDirichletAllocation, PrivacyPlan
    >>> from vips.datasets import make_lda_corpus
    >>> corpus = make_lda_corpus(n_documents=2000, n_topics=4, n_words=60, document_length=40, random_state=0)
    >>> plan = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-5, sampling_rate=0.3, n_steps=20)
    >>> model = LatentDirichletAllocation(n_components=4, vocabulary=60, privacy=plan).fit(corpus.counts)
    >>> model.transform(corpus.counts[:5]).shape
    (5, 4)
    """

    n_components: int = whole(default=10, kw_only=False)
    doc_topic_prior: float | None = _prior(default=None)
    topic_word_prior: float | None = _prior(default=None)
    inference: str = choice("vb", "em", default="vb")
    vocabulary: Sequence[str] | int | None = None
    public_documents: object = None
    schedule: Callable[[int], float] | None = function_of_step("RobbinsMonro()", default=None)
    document_length: int | None = whole(default=None)
    length_method: str = choice("resample", "scale", default="resample")
    max_doc_update_iter: int | None = whole(default=None)
    mean_change_tol: float = number(0.0, np.inf, "finite and not negative", default=0.001, open_high=True)
    on_invalid: str = "drop"
    dtype: type = precision(default=np.float32)

    unit = "one document"
    ignores_labels = takes_sparse = True
    adds_up = True
    exact_rows = True
    tolerance = 1e-3
    _unlisted = ("resized", "topic_concentration", "word_concentration")

    # -- the contract -------------------------------------------------------------------------------------------

    def check_parameters(self) -> None:
        """Check all constructor arguments, before the documents are read."""
        if self.vocabulary is not None:
            _vocabulary_size(self.vocabulary)
        elif self.is_private:
            raise ValueError(
                "`vocabulary` is required for a private fit: reading it from the documents would reveal rare words. "
                "Pass a public word list, e.g. LatentDirichletAllocation(vocabulary=words, ...), or its length."
            )
        check_public(self.public_documents, None if self.vocabulary is None else _vocabulary_size(self.vocabulary))

    def check_table(self, X) -> None:
        """Warn of a matrix that TfidfVectorizer may have written; CountVectorizer writes integers."""
        if sp.issparse(X) and X.dtype.kind == "f":
            warnings.warn(
                f"X is a sparse matrix of {X.dtype}. A private fit needs counts of words: it ignores every document with "
                "an entry that is not whole, such as a TF-IDF weight. For counts use sklearn's CountVectorizer; if these are "
                "counts, write X.astype(int).",
                PrivacyWarning,
                stacklevel=levels_to_user(),
            )

    def check_values(self, X, y) -> None:
        check_non_negative(X, type(self).__name__)

    def check_features(self) -> None:
        if self.n_features_in_ != self._n_words():
            raise ValueError(
                f"X has {self.n_features_in_} columns but the vocabulary has {self._n_words()} words: column i must "
                "count word i of `vocabulary`."
            )
        if isinstance(self.vocabulary, Sequence | np.ndarray):
            _check_words(getattr(self, "feature_names_in_", ()), self.vocabulary, "X")
            _check_words(getattr(self.public_documents, "columns", ()), self.vocabulary, "public_documents")

    def default_plan(self, n_records: int) -> PrivacyPlan:
        """Up to 4,096 documents, full batches until the topics have settled, at most 200; beyond, samples of about that size
        for about four passes."""
        if n_records <= 4096:
            return PrivacyPlan.non_private(sampling_rate=1.0, n_steps=200)
        rate = 4096 / n_records
        return PrivacyPlan.non_private(sampling_rate=rate, n_steps=max(30, round(4 / rate)))

    def describe(self) -> dict:
        words = "number of words" if isinstance(self.vocabulary, int | np.integer) else "vocabulary"
        public = () if self.public_documents is None else (f"{np.shape(self.public_documents)[0]:,} public documents",)
        return {
            "unit": self.unit,
            "released": ("noisy topic-word totals of every step", "hence the posterior of the topics"),
            "declared_public": (f"the {words}", "n_components", "priors and all other constructor arguments", *public),
        }

    def column_names(self) -> list[str]:
        """The vocabulary, if it was given as words."""
        if self.vocabulary is None or isinstance(self.vocabulary, int | np.integer):
            return super().column_names()
        return [str(word) for word in self.vocabulary]

    def posterior_parts(self, posterior) -> list[Part]:
        """Topics, word by word."""
        if not isinstance(posterior, (Dirichlet, ScaledDirichlet)):
            return super().posterior_parts(posterior)
        words, topics = self.column_names(), [f"topic {k}" for k in range(len(posterior.mean))]
        return [Part("topics", posterior, partial(in_table, topics, words), words)]

    def components(self, posterior) -> tuple[np.ndarray, str]:
        """Topics are matched by their words' probabilities."""
        return posterior.mean, "hellinger"

    def in_order(self, posterior, order: np.ndarray) -> Any:
        return posterior.taken(order)

    def held_out_scores(self, X, y=None) -> list[Score]:
        """Log likelihood per word, by document completion."""
        total, n = self._held_out(X)
        return [Score("log likelihood per word (higher is better)", lambda counts: divided(counts @ total, counts @ n))]

    def predictions(self, X) -> np.ndarray:
        """Log likelihood of the held-out words of each document."""
        return self._held_out(X)[0]

    def _held_out(self, X) -> tuple[np.ndarray, np.ndarray]:
        """Log likelihood of the held-out words of each document, and their number, on one fixed split."""
        return _completed(self, *split_words(canonical(X), np.random.default_rng(0)))

    def topic_concentration(self) -> float:
        """α: the prior of a document's topic shares; with EM, next to none."""
        return self._concentration(self.doc_topic_prior)

    def word_concentration(self) -> float:
        """η: the prior of a topic's words; with EM, next to none."""
        return self._concentration(self.topic_word_prior)

    def _concentration(self, prior: float | None, n_topics: int | None = None) -> float:
        if self.inference == "em":
            return _NO_PRIOR
        return 1.0 / (n_topics or self.n_components) if prior is None else float(prior)

    def blocks(self) -> dict[str, Block]:
        blocks = {"topic_word": Block((self.n_components, self._n_words()))}
        return blocks | (self._many_topics() if self._n_first(self.plan_of_fit().n_steps) else {})

    def _many_topics(self) -> dict[str, Block]:
        return {_MANY: Block((_TIMES * self.n_components, self._n_words()))}

    def phases(self, n_steps: int) -> list[FitPhase]:
        """Private fits begin with twice as many topics, of which like ones are merged (``merging.py``)."""
        n_first = self._n_first(n_steps)
        many, few = (
            f"noisy totals of words by topic, of {n:,} topics" for n in (_TIMES * self.n_components, self.n_components)
        )
        blocks = self._many_topics()  # as a fit of so many steps has it
        first = FitPhase(_MANY, n_first, blocks=blocks, update=self._to_many, end=self._merged, released=many)
        return [first, FitPhase("topics", n_steps - n_first, blocks=["topic_word"], released=few)]

    def _n_first(self, n_steps: int) -> int:
        """Steps with many topics."""
        is_one = self.n_components == 1 or self.public_documents is not None or not self.is_private
        return 0 if is_one or isinstance(self.privacy, StreamPlan) else int(_FIRST * n_steps)

    def initial(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Gamma(100, 1/100) entries, as in the paper and in Hoffman's code; or the counts of public documents, fitted alone."""
        if self.public_documents is not None:
            return {"topic_word": topics_of_public(self, rng)}
        return {name: self._random_topics(rng, *block.shape) for name, block in self.blocks().items()}

    def _random_topics(self, rng: np.random.Generator, n_topics: int, n_words: int) -> np.ndarray:
        return rng.gamma(100.0, 0.01, (n_topics, n_words))

    def start(self, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], TopicPosterior]:
        average, posterior = super().start(rng)
        if phases_of(self, self.plan_of_fit().n_steps)[0].name != _MANY:
            return average, posterior
        return average, single_topic(self._to_many(average, {_MANY: 0.0}, None).concentration)

    def shaped_after(self, step: int) -> TopicPosterior:
        rng, plan = np.random.default_rng(0), self.plan_of_fit()
        return self.start(rng)[1] if step < self._n_first(plan.n_steps) else super().start(rng)[1]

    def valid_records(self, records) -> np.ndarray:
        return valid_documents(records, self._n_words(), integers=self.is_private)

    def prepare(self, posterior: TopicPosterior) -> None:
        posterior.word_weights(np.dtype(self.dtype), self.is_private)

    def expected_statistics(self, records, posterior: TopicPosterior) -> DocumentStatistics:
        n_updates = self.max_doc_update_iter or (_UPDATES_AT_FIRST if posterior.step == 0 else _UPDATES)
        return self._infer(self.resized(canonical(records)), posterior, n_updates, mean=self.is_private)

    def to_posterior(self, average, noise_std, previous: TopicPosterior | None) -> TopicPosterior:
        """λ = η + average. A noisy average is first denoised, and cells are scaled for the next step: ``denoising.py``.

        Scales change from step to step. The average of ``c_kv s_kv`` over steps is divided by the same average of c_kv.
        """
        return self._topics("topic_word", average, noise_std, previous)

    def _to_many(self, average, noise_std, previous: TopicPosterior | None) -> TopicPosterior:
        return self._topics(_MANY, average, noise_std, previous)

    def _topics(self, block: str, average, noise_std, previous: TopicPosterior | None) -> TopicPosterior:
        if previous is not None and previous.is_single:
            return self._after_single(average[block], noise_std[block], previous)
        noise, step = noise_std[block], 0 if previous is None else previous.step + 1
        rho = None if previous is None else step_weight(self, step)
        counts, average_scale = undo_scales(average[block], previous, rho)
        prior = self.word_concentration()
        public = None if self.public_documents is None or previous is None else counts_of_public(self, previous)
        if noise == 0.0:
            np.maximum(counts, 0.0, out=counts)
            counts += prior if public is None else prior + public
            return TopicPosterior(counts, None, average_scale, step)
        noise_std = noise / average_scale
        if public is None:
            denoise_counts(counts, noise_std, out=counts)
        else:
            counts, weight = denoise_with_public(counts, noise_std, public)
            prior = prior + weight * public
            if step == 1 and weight == 0.0:  # the public documents are of another kind: so were the topics of this step
                random = self._random_topics(as_generator(self.random_state), *counts.shape)
                return TopicPosterior(prior + random, None, average_scale, 1)
        scale = scale_cells(counts, noise_std, out=noise_std)
        counts += prior
        counts.flags.writeable = False
        return TopicPosterior(counts, scale, average_scale, step)

    def _after_single(self, average: np.ndarray, noise: float, previous: TopicPosterior) -> TopicPosterior:
        """After a step with a single topic: many, if the noise that the fit will have does not hide them (``planning.py``)."""
        step, (n_topics, n_words) = previous.step + 1, average.shape
        prior = self._concentration(self.topic_word_prior, 1)
        counts, average_scale = undo_scales(average[:1], previous, step_weight(self, step))
        denoised, words = denoise_counts(counts, noise / average_scale)
        plan = replace(self.plan_of_fit(), clip_norm=self.plan_of_fit().clip_norm or self.default_clip())
        std = std_of_average(plan, self.schedule or _AVERAGING)
        if step == 1 and shows_topics(counts.sum(), n_words, std):
            topics = self._random_topics(as_generator(self.random_state), n_topics, n_words) * words / n_topics
            return TopicPosterior(self.word_concentration() + topics, None, np.zeros(topics.shape), step, carried=0.0)
        carried = 1.0
        if self.schedule is None:
            carried = factor_of_plain_average(step_weight(self, step), step_weight(self, step + 1))
        concentration = (prior + denoised) * np.where(np.arange(n_topics) == 0, 1.0, _OF_UNUSED)[:, None]
        scale = scale_cells(denoised, noise / average_scale)
        return single_topic(concentration, scale, carried * average_scale, step, carried)

    def _merged(self, average, noise_std, previous: TopicPosterior) -> TopicPosterior:
        """The topics that ``n_components`` groups of like ones make together."""
        many, prior = self._to_many(average, noise_std, previous), self.word_concentration()
        if many.is_single or many.carried == 0.0:
            return many.first(self.n_components)
        counts = many.concentration - prior
        parents = parents_of(counts, self.n_components)
        counts, average_scale = merged_rows(counts, parents), scale_of_merged(many.average_scale, parents)
        scale = scale_cells(counts, noise_std[_MANY] / average_scale)
        return TopicPosterior(counts + prior, scale, average_scale, many.step, parents)

    def transport(self, average, noise_std, previous: TopicPosterior, posterior: TopicPosterior):
        """After the merge, totals of merged topics: sums, scaled so that they have the noise of the others. While there is a
        single topic, a factor makes the average the plain one of all steps; where many follow, it begins again."""
        n_before, n_topics = len(previous.concentration), len(posterior.concentration)
        if n_before == n_topics and posterior.carried == 1.0:
            return average, noise_std
        source, block = (_MANY if n > self.n_components else "topic_word" for n in (n_before, n_topics))
        carried, noise = posterior.carried * average[source][:n_topics], posterior.carried * noise_std[source]
        if posterior.parents is not None:
            counts, _ = undo_scales(average[source], previous, step_weight(self, posterior.step))
            carried = posterior.average_scale * merged_rows(counts, posterior.parents)
        return dict(average) | {block: carried}, dict(noise_std) | {block: noise}

    def kept_steps(self, n_steps: int) -> Collection[int]:
        n_totals = self.n_components * self._n_words()
        is_large = self.n_components * n_totals > MOST_PRODUCTS
        return () if is_large else kept_steps(self, n_steps, most_totals=2 * n_totals)

    def to_match(self) -> TopicMatch:
        if self.public_documents is not None:
            raise NotImplementedError("Topics of fits with `public_documents` are not matched to the totals yet.")
        if self.inference == "em":
            raise NotImplementedError(
                'Topics of fits with inference="em" are not matched to the totals: documents are drawn from a prior of topic '
                "shares, which maximum likelihood does not have."
            )
        if self.last_posterior_.is_single:
            raise NotImplementedError(
                "Noise hides all topics: they are the frequencies of words, and have no intervals."
            )
        return match_of(self)

    def to_noise_aware_posterior(self) -> ScaledDirichlet:
        """Topics of the match, if no noise hides one."""
        return matched_topics(self.match())

    def advice(
        self, plan: PrivacyPlan | StreamPlan, n_documents: float, n_different: float, purpose: str = "reading"
    ) -> TopicsAdvice:
        """How many topics so many documents, of so many different words, support under a plan with a clip norm; those of a
        stream in all its batches."""
        if isinstance(plan, StreamPlan):
            std = plan.noise_std(plan.n_batches) * plan.clip_norm
            n_documents *= plan.weight(plan.n_batches) / plan.n_batches
        else:
            std = std_of_average(plan, self.schedule or _AVERAGING)
        return advise_topics(n_documents, self._n_words(), n_different, plan.clip_norm, std, purpose)

    def step_size(self, t: int) -> float:
        """ρ_t: the ``schedule`` if there is one; else 3/(t + 2) in a private fit, (1 + t)^(-0.6) in a non-private
        stochastic one, and 1 in a non-private full-batch one, which is then textbook variational Bayes. A private fit of one
        topic, whose totals are the same in every step, takes their plain average."""
        if self.schedule is not None:
            return self.schedule(t)
        if self.is_private:
            return (_AVERAGING if self.n_components > 1 else PolynomialAveraging(power=0.0))(t)
        return 1.0 if self.plan_of_fit().sampling_rate == 1.0 else RobbinsMonro(offset=1.0, decay=0.6)(t)

    def default_clip(self) -> float:
        """Public constant; see docs/lda.md for how it was chosen."""
        return 5.0

    def max_record_norm(self) -> float:
        """``document_length`` times the largest scale of a word in a private fit: the norm of a document that repeats one word
        of one topic. ``inf`` without a document length."""
        if self.document_length is None:
            return np.inf
        return self.document_length * (LARGEST_SCALE if self.is_private else 1.0)

    def default_chunk_size(self) -> int:
        return 2048

    def bound(self, records, posterior: TopicPosterior) -> float:
        """Evidence lower bound of these documents and the topics, for non-private fits and tests; log likelihood with EM."""
        documents = self.expected_statistics(records, posterior).bounds().sum()
        if self.inference == "em":
            return float(documents)
        prior = Dirichlet(np.full(posterior.concentration.shape, self.word_concentration()))
        return float(documents - posterior.kl(prior).sum())

    # -- methods for users --------------------------------------------------------------------------------------

    def transform(self, X) -> np.ndarray:
        """Topic shares of documents, E[θ] or estimates by EM, shape (n_documents, n_components); rows sum to 1."""
        return _normalised(self._settled(self._check_documents(X)).doc_topic)

    def perplexity(self, X, *, kind: str = "completion", random_state: object = 0) -> float:
        """Perplexity per word of documents that were not fitted; lower is better.

        Parameters
        ----------
        X : CSR matrix or array of shape (n_documents, n_words)
        kind : {"completion", "bound"}
            ``"completion"``: γ is inferred from a random half of each document's words and the other half h scored,
            ``exp(-Σ_dv h_dv log Σ_k E[θ_dk] E[β_kv] / Σ_dv h_dv)``.
            ``"bound"``: ``exp(-Σ_d L_d / Σ_dv n_dv)`` with ``L_d ≤ log p(document | λ)`` the evidence lower bound of a
            document: an upper bound on perplexity, as in Hoffman et al. (2010) and the paper's equation 26. Not with EM, whose
            estimates of shares have no bound.
        random_state : int, Generator, RandomState or None
            Seeds the choice of the halves.

        Returns
        -------
        float
            Independent of the number of documents; ``nan`` if there is no word to score.

        Raises
        ------
        ValueError
            For another ``kind``, and for ``"bound"`` after EM.
        """
        if kind == "bound" and self.inference == "em":
            raise ValueError(
                '`kind="bound"` needs inference="vb": estimates of shares have no bound. Use kind="completion".'
            )
        documents = self._check_documents(X)
        if kind == "bound":
            n_words = documents.sum()
            bound = self._settled(documents).bounds().sum()
            return float(np.exp(-bound / n_words)) if n_words > 0 else float("nan")
        if kind != "completion":
            raise ValueError(f'`kind` must be "completion" or "bound", got {kind!r}.')
        log_likelihood, n_words = _completed(self, *split_words(documents, as_generator(random_state)))
        return float(np.exp(-log_likelihood.sum() / n_words.sum())) if n_words.any() else float("nan")

    def score_samples(self, X) -> np.ndarray:
        """Log likelihood of every second word of each document given the others, in nats, shape (n_documents,)."""
        return _completed(self, *alternate_words(self._check_documents(X)))[0]

    def score(self, X, y=None) -> float:
        """Mean of :meth:`score_samples`."""
        return float(self.score_samples(X).mean())

    @property
    def components_(self) -> np.ndarray:
        """λ, shape (n_components, n_words)."""
        check_is_fitted(self, "last_posterior_")
        return self.last_posterior_.concentration

    @property
    def _n_features_out(self) -> int:
        return self.n_components

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.transformer_tags.preserves_dtype = []  # the constructor's dtype decides
        return tags

    # -- helpers ------------------------------------------------------------------------------------------------

    def _n_words(self) -> int:
        return self.n_features_in_ if self.vocabulary is None else _vocabulary_size(self.vocabulary)

    def _settled(self, documents: sp.csr_array) -> DocumentStatistics:
        """Documents that were not fitted, under the fitted topics."""
        return self._infer(documents, self.last_posterior_, max(_MOST_UPDATES, self.max_doc_update_iter or 0))

    def _infer(
        self, documents: sp.csr_array, posterior: TopicPosterior, n_updates: int, mean=False
    ) -> DocumentStatistics:
        settings = self.topic_concentration(), self.mean_change_tol, n_updates, self.dtype
        point = self.inference == "em"
        block = _MANY if len(posterior.concentration) > self.n_components else "topic_word"
        return DocumentStatistics(documents, posterior, *settings, mean or point, point, block)

    def resized(self, documents: sp.csr_array) -> sp.csr_array:
        """Documents of ``document_length`` words each; empty ones stay empty."""
        if self.document_length is None:
            return documents
        indptr, words, counts = without_zeros(documents.indptr, documents.indices, documents.data.astype(np.float64))
        if self.length_method == "resample":
            drawn = np.empty(len(counts))
            resample_counts(indptr, words, counts, self.document_length, drawn)
            counts = drawn
        else:
            lengths = sp.csr_array((counts, words, indptr), shape=documents.shape).sum(axis=1)
            counts *= np.repeat(self.document_length / np.where(lengths > 0, lengths, 1.0), np.diff(indptr))
        return sp.csr_array((counts, words, indptr), shape=documents.shape)

    def _check_documents(self, X) -> sp.csr_array:
        check_is_fitted(self)
        X = self.read_rows(X, reset=False)
        check_non_negative(X, type(self).__name__)
        return canonical(X)


def _completed(
    model: LatentDirichletAllocation, observed: sp.csr_array, hidden: sp.csr_array
) -> tuple[np.ndarray, np.ndarray]:
    """Log likelihood of each document's hidden words given its observed ones, and the number of the hidden ones."""
    doc_topic = _normalised(model._settled(observed).doc_topic)
    log_likelihood = log_likelihoods(hidden, doc_topic, np.ascontiguousarray(model.last_posterior_.mean.T))
    return log_likelihood, np.asarray(hidden.sum(axis=1), dtype=np.float64).ravel()


def _normalised(doc_topic: np.ndarray) -> np.ndarray:
    return doc_topic / doc_topic.sum(axis=1, keepdims=True)


def _check_words(names: Sequence, vocabulary: Sequence, argument: str) -> None:
    """Raise ValueError if the columns' (public) names are not the words in their order."""
    for i, (name, word) in enumerate(zip(names, vocabulary, strict=False)):
        if isinstance(name, str) and name != str(word):
            raise ValueError(
                f"Column {i} of {argument} is named {name!r}, but word {i} of `vocabulary` is {str(word)!r}: write "
                f"{argument}[list(vocabulary)], or {argument}.select(list(vocabulary)) in Arrow. Are the names no "
                "words? Then pass an array."
            )


def _vocabulary_size(vocabulary: Sequence[str] | int) -> int:
    if isinstance(vocabulary, int | np.integer) and not isinstance(vocabulary, bool):
        check_integer("vocabulary", vocabulary)
        return int(vocabulary)
    if isinstance(vocabulary, str | bool) or not isinstance(vocabulary, Sequence | np.ndarray) or len(vocabulary) == 0:
        raise ValueError("`vocabulary` must be a sequence of words (the word of column i at place i) or their number.")
    if len(set(vocabulary)) != len(vocabulary):
        raise ValueError("`vocabulary` holds a word twice.")
    return len(vocabulary)

"""Generated documents, pathways of patients through a hospital and sparse health records; and digits of scikit-learn."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.optimize import brentq
from scipy.special import expit
from sklearn.datasets import load_digits
from sklearn.utils import Bunch

from vips._support.validation import check_integer
from vips.core.mechanism.random_state import RandomStateLike, as_generator

__all__ = ["load_digits_binary", "make_lda_corpus", "make_pathways", "make_sparse_binary"]

_CHUNK = 1024  # of sparse records
_N_CONDITIONS = 20  # latent conditions, each of which causes its own features
_CONDITION_SHARE = 0.3  # share of a record's ones that conditions cause
_COEF_SHARE = 0.1  # share of features that have an effect; common features more often
_SIGNAL = 2.0  # standard deviation of the linear predictor over the records

_STAGES = {  # how often each event happens in a stage
    "assessment": {"visit": 5, "blood test": 3, "x-ray": 2, "mri": 1, "referral": 2},
    "surgery": {"anaesthesia": 4, "operation": 4, "blood test": 1, "transfusion": 1},
    "intensive care": {"ventilation": 4, "blood test": 3, "transfusion": 1, "antibiotics": 2},
    "ward": {"round": 6, "blood test": 2, "antibiotics": 2, "painkillers": 3, "x-ray": 1},
    "rehabilitation": {"physiotherapy": 6, "visit": 1, "painkillers": 1, "discharge letter": 2},
}
_MOVES = [
    [0.70, 0.15, 0.02, 0.10, 0.03],
    [0.00, 0.50, 0.20, 0.30, 0.00],
    [0.00, 0.03, 0.75, 0.22, 0.00],
    [0.02, 0.03, 0.02, 0.78, 0.15],
    [0.08, 0.00, 0.00, 0.02, 0.90],
]
_FIRST = [0.75, 0.05, 0.05, 0.15, 0.00]


def make_lda_corpus(
    n_documents: int = 1000,
    *,
    n_topics: int = 10,
    n_words: int = 1000,
    document_length: int = 100,
    doc_topic_prior: float = 0.1,
    topic_word_prior: float = 0.05,
    topics: np.ndarray | None = None,
    random_state: RandomStateLike = None,
) -> Bunch:
    """Draw documents from latent Dirichlet allocation.

    Parameters
    ----------
    n_documents, n_topics, n_words, document_length : int
    doc_topic_prior, topic_word_prior : float
        Dirichlet concentrations of topic shares and of topics.
    topics : ndarray of shape (n_topics, n_words), optional
        Known topics (rows sum to 1) instead of drawn ones.
    random_state : int, Generator or None

    Returns
    -------
    Bunch
        ``counts``: CSR of shape (n_documents, n_words), int32; ``topics``: (n_topics, n_words);
        ``doc_topic``: (n_documents, n_topics).
    """
    rng = as_generator(random_state)
    if topics is None:
        topics = rng.dirichlet(np.full(n_words, topic_word_prior), n_topics)
    n_topics, n_words = topics.shape
    doc_topic = rng.dirichlet(np.full(n_topics, doc_topic_prior), n_documents)
    cumulative = np.cumsum(topics, axis=1)
    cumulative /= cumulative[:, -1:]
    chunks = []
    for start in range(0, n_documents, 1024):  # a chunk's words at a time: memory does not grow with n_documents
        shares = doc_topic[start : start + 1024]
        words_of_topic = rng.multinomial(document_length, shares)
        topic = np.repeat(np.tile(np.arange(n_topics), len(shares)), words_of_topic.ravel())
        row = np.repeat(np.arange(len(shares), dtype=np.int32), document_length)
        word = np.empty(len(row), dtype=np.int32)
        uniform = rng.random(len(row))
        for k in range(n_topics):
            of_topic = topic == k
            word[of_topic] = np.searchsorted(cumulative[k], uniform[of_topic], side="right")
        ones = np.ones(len(row), dtype=np.int32)
        chunks.append(sp.coo_array((ones, (row, np.minimum(word, n_words - 1))), shape=(len(shares), n_words)).tocsr())
    counts = sp.vstack(chunks, format="csr") if chunks else sp.csr_array((0, n_words), dtype=np.int32)
    return Bunch(counts=counts, topics=topics, doc_topic=doc_topic)


def load_digits_binary() -> Bunch:
    """1,797 images of handwritten digits, 8 by 8 pixels, on where the grey value of scikit-learn's digits is at least half.

    Returns
    -------
    Bunch
        ``data``: (1797, 64) bool; ``target``: (1797,) int.

    Examples
    --------
    >>> load_digits_binary().data.shape
    (1797, 64)
    """
    digits = load_digits()
    return Bunch(data=digits.data >= 8, target=digits.target)


def make_pathways(n_patients: int = 20_000, *, random_state: RandomStateLike = None) -> Bunch:
    """Events of patients in five stages of a stay, as a table with a row for each event.

    Parameters
    ----------
    n_patients : int
    random_state : int, Generator, RandomState or None

    Returns
    -------
    Bunch
        ``patient`` and ``day``, integers of shape (n_events,); ``event``, strings of shape (n_events,); ``event_names``, the 14
        possible events; ``stage_names``, ``startprob``, ``transmat`` and ``emissionprob``, the truth; ``stage``, the hidden
        stage of each event. Rows are in no order.
    """
    check_integer("n_patients", n_patients)
    rng = as_generator(random_state)
    names = sorted({event for events in _STAGES.values() for event in events})
    emissions = np.array([[events.get(name, 0) for name in names] for events in _STAGES.values()], dtype=float)
    emissions /= emissions.sum(axis=1, keepdims=True)
    start, moves = np.array(_FIRST), np.array(_MOVES)
    lengths = np.minimum(3 + rng.geometric(1.0 / 18.0, n_patients), 60)
    patient = np.repeat(np.arange(n_patients), lengths)
    step = np.arange(len(patient)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    stage = np.empty(len(patient), np.int64)
    for t in range(lengths.max(initial=0)):
        rows = np.flatnonzero(step == t)
        below = np.cumsum(start)[None] if t == 0 else np.cumsum(moves, axis=1)[stage[rows - 1]]
        stage[rows] = (rng.random((len(rows), 1)) >= below[:, :-1]).sum(axis=1)
    event = (rng.random((len(stage), 1)) >= np.cumsum(emissions, axis=1)[stage, :-1]).sum(axis=1)
    order = rng.permutation(len(patient))
    day = 2 * step + rng.integers(0, 2, len(step))
    return Bunch(
        patient=patient[order],
        day=day[order],
        event=np.array(names)[event[order]],
        stage=stage[order],
        event_names=names,
        stage_names=list(_STAGES),
        startprob=start,
        transmat=moves,
        emissionprob=emissions,
    )


def make_sparse_binary(
    n_records: int = 12_586,
    n_features: int = 4_146,
    positive_rate: float = 0.14,
    *,
    n_active: float = 40.0,
    random_state: RandomStateLike = None,
) -> Bunch:
    """Draw sparse binary records and their labels from a logistic regression with known coefficients.

    The defaults have the shape of a study of health records, 12,586 patients and 4,146 drugs and conditions: a few features
    are common, most are rare, some occur together. A tenth of the features have an effect, a few of them a large one. With
    the defaults, scikit-learn's logistic regression reaches an AUC of 0.80 to 0.85 on records that it has not seen.

    Parameters
    ----------
    n_records, n_features : int
    positive_rate : float
        Expected share of positive labels, between 0 and 1; the intercept is solved for.
    n_active : float
        About how many features a record has.
    random_state : int, Generator or None

    Returns
    -------
    Bunch
        ``data``: CSR of shape (n_records, n_features), uint8 zeros and ones; ``target``: (n_records,) bool; ``coef``:
        (n_features,); ``intercept``: float.
    """
    if not 0.0 < positive_rate < 1.0:
        raise ValueError(f"`positive_rate` must be between 0 and 1, got {positive_rate!r}.")
    if not 0.0 < n_active < n_features:
        raise ValueError(f"`n_active` must be between 0 and n_features = {n_features}, got {n_active!r}.")
    rng = as_generator(random_state)
    frequency = _long_tail(n_features, n_active * (1.0 - _CONDITION_SHARE))[rng.permutation(n_features)]
    prevalence = rng.uniform(0.02, 0.2, _N_CONDITIONS)
    brings = rng.exponential(size=(_N_CONDITIONS, n_features)) * (rng.random((_N_CONDITIONS, n_features)) < 0.02)
    brings *= n_active * _CONDITION_SHARE / max(prevalence @ brings.sum(axis=1), 1e-300)
    chunks = []
    for start in range(0, n_records, _CHUNK):
        n_rows = min(_CHUNK, n_records - start)
        has = (rng.random((n_rows, _N_CONDITIONS)) < prevalence).astype(float)
        absent = (1.0 - frequency) * np.exp(-has @ brings)  # neither the base rate nor a condition causes the feature
        chunks.append(sp.csr_array((rng.random((n_rows, n_features)) >= absent).astype(np.uint8)))
    data = sp.vstack(chunks, format="csr") if chunks else sp.csr_array((0, n_features), dtype=np.uint8)

    expected = 1.0 - (1.0 - frequency) * np.exp(-prevalence @ brings)
    coef = _coefficients(expected, brings, prevalence, rng)
    predictor = data @ coef
    intercept = 0.0
    if n_records:
        reach = np.abs(predictor).max() + 50.0
        intercept = float(brentq(lambda b: expit(predictor + b).mean() - positive_rate, -reach, reach))
    target = rng.random(n_records) < expit(predictor + intercept)
    return Bunch(data=data, target=target, coef=coef, intercept=intercept)


def _long_tail(n_features: int, total: float) -> np.ndarray:
    """Frequencies of a few common and many rare features, adding up to ``total``, at most 0.6 each."""
    weight = (np.arange(n_features) + 5.0) ** -1.1

    def frequencies(scale: float) -> np.ndarray:
        return np.minimum(scale * weight, 0.6)

    largest = 0.6 / weight[-1]
    if frequencies(largest).sum() <= total:
        return np.full(n_features, total / n_features)
    return frequencies(brentq(lambda scale: frequencies(scale).sum() - total, 0.0, largest))


def _coefficients(
    frequency: np.ndarray, brings: np.ndarray, prevalence: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Heavy-tailed effects of some features; the linear predictor has standard deviation about ``_SIGNAL``."""
    n_features = len(frequency)
    n_effects = max(1, round(_COEF_SHARE * n_features))
    chosen = rng.choice(n_features, n_effects, replace=False, p=frequency / frequency.sum())
    coef = np.zeros(n_features)
    coef[chosen] = rng.standard_t(4, n_effects)
    through_conditions = (-np.expm1(-brings) * (1.0 - frequency)) @ coef  # features that occur together add up
    variance = np.sum(coef**2 * frequency * (1.0 - frequency))
    variance += np.sum(through_conditions**2 * prevalence * (1.0 - prevalence))
    return coef * _SIGNAL / np.sqrt(variance)

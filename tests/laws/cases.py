"""Registry of models that every law runs over. A new model joins by one entry in ``CASES``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import scipy.sparse as sp

from tests.models.markov.columns import ColumnHMM
from vips import (
    BayesianBinomialRegression,
    BayesianGaussianMixture,
    BayesianLinearRegression,
    BayesianLogisticRegression,
    BayesianNegativeBinomialRegression,
    Block,
    CategoricalHMM,
    ConjugateExponentialModel,
    DenseStatistics,
    DirichletMultinomial,
    FactorAnalysis,
    FactorialHMM,
    GaussianHMM,
    LatentClassAnalysis,
    LatentDirichletAllocation,
    LinearDynamicalSystem,
    MixedLatentClassAnalysis,
    MixedLogisticRegression,
    MixedNegativeBinomialRegression,
    PoissonHMM,
    PrivateTable,
    ProbabilisticPCA,
    Records,
    RobbinsMonro,
    SigmoidBeliefNetwork,
    SpatialCounts,
    SwitchingLinearDynamicalSystem,
)
from vips.data import Sequences
from vips.expfam import Gaussian


class BetaBernoulli(ConjugateExponentialModel):
    """Independent coins with a Beta(1, 1) prior; the number of records is a block like any other."""

    def __init__(self, privacy=None, random_state=None, on_invalid="drop"):
        self.privacy = privacy
        self.random_state = random_state
        self.on_invalid = on_invalid

    def blocks(self):
        return {"heads": Block((self.n_features_in_,)), "count": Block((), scale=0.5)}

    def initial(self, rng):
        return {"heads": np.zeros(self.n_features_in_), "count": np.zeros(())}

    def valid_records(self, records):
        return ((records == 0) | (records == 1)).all(axis=1)

    def expected_statistics(self, records, posterior):
        return DenseStatistics({"heads": records, "count": np.ones(len(records))})

    def to_posterior(self, average, noise_std, previous):
        heads = np.maximum(average["heads"], 0.0)
        return {"a": 1.0 + heads, "b": 1.0 + np.maximum(average["count"] - heads, 0.0)}

    def max_record_norm(self):
        return float(np.sqrt(self.n_features_in_ + 4.0))


class SecondMoments(ConjugateExponentialModel):
    """Moments x and x yᵀ with y a shifted x: a non-symmetric array in a symmetric block, whose scale is not 1."""

    def __init__(self, privacy=None, random_state=None):
        self.privacy = privacy
        self.random_state = random_state

    def blocks(self):
        d = self.n_features_in_
        return {"first": Block((d,), scale=0.7), "second": Block((d, d), symmetric=True, scale=3.0)}

    def initial(self, rng):
        d = self.n_features_in_
        return {"first": rng.normal(size=d), "second": np.zeros((d, d))}

    def expected_statistics(self, records, posterior):
        pulled = records - 0.1 * np.tanh(posterior["mean"])  # so that the statistics depend on the posterior
        return DenseStatistics({"first": pulled, "second": pulled[:, :, None] * np.roll(pulled, 1, axis=1)[:, None, :]})

    def to_posterior(self, average, noise_std, previous):
        return {"mean": average["first"].copy(), "second": average["second"].copy()}

    def default_clip(self):
        return 2.0


@dataclass(frozen=True)
class Case:
    """A model with data to test it on.

    ``hostile`` holds records that are valid for the container (right width and dtype) but meant to do harm; ``extreme`` is
    a valid record whose norm is far above any clip. ``sparse`` asks for a posterior with most entries at the prior. ``labels``:
    a record's norm is the largest over these labels, up to the part of the squared scores. ``has_missing``: entries that are
    not finite are missing, and the rest of the record counts. ``norm_factor``: of a record, by which its norm counts cells that
    are missing. A row of a model of sequences is a sequence of any length.
    ``reach`` is the norm of the largest share of a record over the clip norm: lower where blocks are clipped one by one.
    ``phase`` is the phase of the E-steps that laws look at, "" for the last one. In phases of a regression that searches the
    posterior has coordinates that zooms before have found, and ``size`` for C.
    """

    name: str
    make_model: Callable[..., ConjugateExponentialModel]
    make_records: Callable[[int, np.random.Generator], object]
    hostile: dict[str, np.ndarray]
    extreme: np.ndarray
    clip_norm: float
    sparse: bool = False
    labels: tuple[int, ...] = ()
    has_missing: bool = False
    norm_factor: Callable[[np.ndarray], float] | None = None
    reach: float = 0.99
    phase: str = ""
    size: float = 1.0


N_FEATURES, N_WORDS, MANY_WORDS = 5, 30, 300  # a tile of the LDA kernel is 128 words
LEVELS = (2, 5, 2, 3, 4)  # of answers
MIXED_COLUMNS = [(-2.0, 2.0), range(6), 3, (-5.0, 5.0), 2]
TABLE_COLUMNS = [(-2.0, 2.0), (0, 5), [0, 1, 2], (-5.0, -5.0, 0.0, 5.0), [0, 1]]
TABLE_RULES = [{2: [1], 4: [1]}, {3: (-5.0, 0.0), 1: "(answered)"}]
WIDE = 150  # columns: more than any tile or machine word
MAX_LENGTH = 50


def _coins(n, rng, width=N_FEATURES):
    return rng.integers(0, 2, (n, width)).astype(float)


def _sparse_coins(n, rng):
    return sp.csr_array(_coins(n, rng))


def _vectors(n, rng, width=N_FEATURES):
    return rng.normal(size=(n, width))


def _documents(n, rng):
    return sp.csr_array(rng.poisson(rng.gamma(0.3, 3.0, (n, N_WORDS))))


def _answers(n, rng, levels=LEVELS):
    """Codes, some of them missing."""
    answers = rng.integers(0, levels, (n, len(levels))).astype(float)
    answers[rng.random(answers.shape) < 0.1] = np.nan
    return answers


def _as_if_answered(record, levels=LEVELS):
    """Factor of the norm of a record of answers, in which missing ones count."""
    n_answers = np.sum((record >= 0.0) & (record < levels) & (record == np.floor(record)))
    return np.sqrt((1.0 + len(levels)) / (1.0 + n_answers))


def _sequences(n, rng):
    """Codes, some of them missing; the first sequence is empty."""
    lengths = np.resize([0, 5, 1, 8, 2], n)
    codes = rng.integers(0, 4, lengths.sum()).astype(float)
    codes[rng.random(len(codes)) < 0.1] = np.nan
    return Sequences.from_lengths(codes, lengths)


def _sequences_of_vectors(n, rng):
    """As ``_sequences``, of vectors."""
    codes = _sequences(n, rng)
    return Sequences(codes.values + rng.normal(size=(len(codes.values), 3)), codes.offsets)


def _sequences_of_counts(n, rng):
    """As ``_sequences``, of counts in three columns, each with missing cells of its own."""
    codes = _sequences(n, rng)
    counts = rng.poisson([1.0, 3.0, 0.5], (len(codes.values), 3)).astype(float)
    return Sequences(np.where(rng.random(counts.shape) < 0.1, np.nan, counts), codes.offsets)


def _sequences_of_columns(n, rng):
    """As ``_sequences``, of a number, a count and a code, each missing at times."""
    codes = _sequences(n, rng)
    of_steps = [rng.normal(0.0, 1.5, len(codes.values)), rng.poisson(1.5, len(codes.values)), codes.values[:, 0] % 3]
    values = np.column_stack(of_steps)
    return Sequences(np.where(rng.random(values.shape) < 0.1, np.nan, values), codes.offsets)


def _mixed(n, rng):
    """Numbers, counts and codes, some of them missing: the columns of ``MIXED_COLUMNS``."""
    numbers, codes = rng.normal(0.0, 1.5, (n, 2)), rng.integers(0, (3, 2), (n, 2))
    rows = np.column_stack([numbers[:, 0], rng.poisson(1.5, n), codes[:, 0], numbers[:, 1], codes[:, 1]]).astype(float)
    rows[rng.random(rows.shape) < 0.1] = np.nan
    return rows


def _series(n, rng):
    """Vectors, some entries missing; the first sequence is empty."""
    lengths = np.resize([0, 5, 1, 8, 2], n)
    values = rng.normal(size=(lengths.sum(), 2))
    values[rng.random(values.shape) < 0.1] = np.nan
    return Sequences.from_lengths(values, lengths)


def _hostile_series():
    """Each hostile row as the steps of one column beside another, no step at all, and more than the longest."""
    rows = {name: np.column_stack([row, np.resize([1.0, -1.0, 0.5], len(row))]) for name, row in _hostile(9).items()}
    return rows | {
        "no": np.zeros((0, 2)),
        "missing": np.full((30, 2), np.nan),
        "middle nan": np.array([[1.0, 1.0], [np.nan, np.nan], [1.0, -1.0]]),
        "long": np.full((5_000, 2), 3.0),
        "alternating": np.resize([1.0, 1.0, -1.0, 2.0], (MAX_LENGTH - 1, 2)),
    }


def _hostile_sequences():
    """Hostile codes, no step at all, more than the longest, and a few thousand of one or of two symbols in turn."""
    return _hostile(9) | {
        "no": np.zeros(0),
        "missing": np.full(30, np.nan),
        "middle nan": np.array([1.0, np.nan, 1.0]),
        "beyond": np.array([1.0, 130.0, 2.0**63, 2.0]),
        "long": np.full(5_000, 3.0),
        "alternating": np.resize([0.0, 1.0], MAX_LENGTH - 1),
    }


def _long_documents(n, rng):
    """A long document before short ones, and lengths on both sides of one and two tiles."""
    sizes = np.resize([290, 3, 127, 1, 128, 129, 2, 256, 257], n)
    counts = np.zeros((n, MANY_WORDS))
    for row, size in zip(counts, sizes, strict=True):
        row[rng.choice(MANY_WORDS, size, replace=False)] = rng.integers(1, 4, size)
    return sp.csr_array(counts)


def _lda(**arguments):
    defaults = {"n_components": 3, "vocabulary": N_WORDS, "dtype": np.float64}
    return LatentDirichletAllocation(**(defaults | arguments))


def _hostile(width):
    row = np.ones(width)
    nan, inf, minus = row.copy(), row.copy(), row.copy()
    nan[1], inf[2], minus[0] = np.nan, np.inf, -1.0
    return {
        "nan": nan,
        "inf": inf,
        "minus inf": -inf,
        "negative": minus,
        "zero": np.zeros(width),
        "huge": np.full(width, 1e300),
        "norm overflows": np.full(width, 1.7e308),
        "one huge": np.eye(1, width)[0] * 1e160,
        "large": np.full(width, 1e9),
        "tiny": np.full(width, 1e-310),
        "fractional": np.full(width, 0.5),
        # near the largest float32, on few words
        **{
            f"count {count:g}": np.where(np.arange(width) % 7 == 0, count, 0.0) for count in (2.0**53, 3e37, 1e38, 3e38)
        },
    }


def arguments(records) -> tuple:
    """Arguments of ``fit``: X, or X and y."""
    if not isinstance(records, Records):
        return (records,)
    return records.X, records.y if records.y.ndim == 1 else records.y[:, 0]


def exposures(records) -> dict[str, np.ndarray]:
    """Those that ``fit`` takes besides, beside counts that have any."""
    has_any = isinstance(records, Records) and records.y.ndim > 1
    return {"exposure": records.y[:, 1]} if has_any else {}


def _labelled(largest_label, sparse=False, width=N_FEATURES):
    def make(n, rng):
        X = rng.normal(size=(n, width)) * (rng.random((n, width)) < 0.7)
        return Records(sp.csr_array(X) if sparse else X, rng.integers(0, largest_label + 1, n).astype(float))

    return make


def _hostile_labelled(label, width=N_FEATURES):
    """Hostile features under a valid label, and hostile labels."""
    rows = {name: np.append(row, label) for name, row in _hostile(width).items()}
    labels = {"nan": np.nan, "minus": -1.0, "fraction": 0.5, "huge": 1e300, "other": 77.0}
    return rows | {f"label {name}": np.append(np.ones(width), value) for name, value in labels.items()}


def _exposed(case):
    """The same case, whose counts have exposures from 0.5 to 16, of which 10 is the largest that counts."""
    bounds = {"exposure_bounds": (0.25, 10.0)}

    def make_records(n, rng):
        records = case.make_records(n, rng)
        return replace(records, y=np.column_stack([records.y, 0.5 * 2.0 ** rng.integers(0, 6, n)]))

    rows = {name: np.append(row, 2.0) for name, row in case.hostile.items()}
    values = {"nan": np.nan, "zero": 0.0, "minus": -1.0, "inf": np.inf, "tiny": 1e-310, "huge": 1e300, "least": 0.25}
    rows |= {f"exposure {name}": np.append(case.extreme, value) for name, value in values.items()}
    return replace(
        case,
        make_model=lambda **arguments: case.make_model(**(bounds | arguments)),
        make_records=make_records,
        hostile=rows,
        extreme=np.append(case.extreme, 1e3),
    )


def _regression_case(
    name,
    model,
    largest_label=1,
    sparse=False,
    width=N_FEATURES,
    *,
    clip_norm=0.05,
    reach=0.94,
    phase="",
    size=1.0,
    **settings,
):
    extreme = np.append(np.linspace(-1e4, 1e4, width), largest_label)
    return Case(
        name,
        lambda **arguments: model(**{"max_norm": 1.5} | settings | arguments),
        _labelled(largest_label, sparse, width),
        _hostile_labelled(float(largest_label), width),
        extreme,
        clip_norm,
        labels=tuple(range(largest_label + 1)),
        reach=reach,
        phase=phase,
        size=size,
    )


def _searched_case(name, model, *labels, **settings):
    """In a phase of a fit that searches, with the clip norm of such a fit: so squares weigh as much as they do there."""
    return _regression_case(name, model, *labels, **({"clip_norm": 1.0} | settings))


def _spatial_case(name, areas):
    """Counts in areas with names that are numbers."""
    last = float(max(areas))
    of_area = {"nan": np.nan, "inf": np.inf, "minus inf": -np.inf, "negative": -1.0, "zero": 0.0, "fractional": 0.5}
    of_area |= {
        "tiny": 1e-310,
        "huge": 1e300,
        "one huge": 1e160,
        "large": 1e9,
        "count 9e15": 2.0**53,
        "undeclared": last + 1.0,
    }
    of_count = {"nan": np.nan, "minus": -1.0, "fraction": 0.5, "huge": 1e300, "other": np.inf}
    return Case(
        name,
        lambda **arguments: SpatialCounts(**{"areas": areas, "max_count": 5} | arguments),
        lambda n, rng: Records(rng.choice(list(areas), (n, 1)).astype(float), rng.integers(0, 7, n).astype(float)),
        {word: np.array([value, 1.0]) for word, value in of_area.items()}
        | {f"label {word}": np.array([last, value]) for word, value in of_count.items()},
        np.array([last, 5.0]),
        0.6,
    )


def _mixed_effects_case(name, model, largest_label=1, sparse=False, **settings):
    of_regression = _regression_case(name, model, largest_label, sparse, **settings)
    return replace(of_regression, labels=(), reach=0.3)


class OfMoments(BayesianLinearRegression):
    """Without zooms and scores, as fits of a single step and streams."""

    _searches = False


def _linear_case(
    name, sparse=False, width=N_FEATURES, phase="", size=1.0, model=BayesianLinearRegression, clip_norm=1.0, **settings
):
    return Case(
        name,
        lambda **arguments: model(**({"max_norm": 1.5, "target_range": (-1.0, 2.0)} | settings | arguments)),
        _labelled(2, sparse, width),
        _hostile_labelled(1.0, width),
        np.append(np.linspace(-1e4, 1e4, width), 77.0),
        clip_norm,
        labels=(-1.0, 2.0),  # one of which has the largest norm
        phase=phase,
        size=size,
    )


def _network_case(name, make_records=_coins, width=N_FEATURES, **settings):
    return Case(
        name,
        lambda **arguments: SigmoidBeliefNetwork(**({"n_components": 3} | settings | arguments)),
        make_records,
        _hostile(width),
        np.ones(width),
        0.3,
    )


def _mixture_case(name, sparse=False, width=N_FEATURES, **settings):
    return Case(
        name,
        lambda **arguments: BayesianGaussianMixture(3, **({"max_norm": 1.5} | settings | arguments)),
        (lambda n, rng: sp.csr_array(_vectors(n, rng, width))) if sparse else partial(_vectors, width=width),
        _hostile(width),
        np.full(width, 1e4),
        0.7,
    )


def _chain_case(name, n_symbols, **settings):
    return Case(
        name,
        lambda **arguments: CategoricalHMM(2, n_symbols=n_symbols, max_length=MAX_LENGTH, **(settings | arguments)),
        _sequences,
        _hostile_sequences(),
        np.resize([3.0, 1.0], MAX_LENGTH),
        0.6,
        has_missing=True,
    )


def _hostile_steps():
    """One step of three columns that is hostile, or a hostile sequence."""
    steps = {name: np.atleast_2d(value) for name, value in _hostile(3).items()}
    return steps | {
        "no": np.zeros((0, 3)),
        "missing": np.full((30, 3), np.nan),
        "middle nan": np.array([[1.0, 0.5, 0.0], [np.nan, 0.5, 0.0], [-1.0, 0.5, 0.0]]),
        "long": np.full((5_000, 3), 1e3),
        "alternating": np.resize([1.0, -1.0], (MAX_LENGTH - 1, 3)),
    }


def _gaussian_chain_case(name, model=GaussianHMM, **settings):
    return Case(
        name,
        lambda **arguments: model(2, **({"max_norm": 1.5, "max_length": MAX_LENGTH} | settings | arguments)),
        _sequences_of_vectors,
        _hostile_steps(),
        np.resize([1e4, -1e4], (MAX_LENGTH, 3)),
        0.6,
        has_missing=True,
    )


_DIRICHLET = {"weight_concentration_prior_type": "dirichlet_distribution"}

# One case of each family, for laws that take too long on every case.
REPRESENTATIVES = {"beta-bernoulli", "lda", "logistic", "proportions", "network", "latent classes", "mixture", "chain"}
# At least one case of each class, and both forms of records and of covariances of a regression and of a network.
ONE_OF_EACH_CLASS = REPRESENTATIVES | {
    "second moments",
    "lda float32, long documents, sparse topics",
    "logistic sparse diagonal",
    "binomial",
    "negative binomial",
    "spatial counts",
    "network full",
    "mixed effects",
    "mixed effects of counts",
    "linear",
    "linear, searched",
    "principal components",
    "factors",
    "gaussian chain",
    "poisson chain",
    "mixed classes",
    "table of pairs",
    "factorial chain",
    "dynamics",
    "switching",
}

CASES = [
    Case("beta-bernoulli", BetaBernoulli, _coins, _hostile(N_FEATURES), np.ones(N_FEATURES), 1.5),
    Case("second moments", SecondMoments, _vectors, _hostile(N_FEATURES), np.full(N_FEATURES, 1e4), 2.0),
    Case("lda", _lda, _documents, _hostile(N_WORDS), np.full(N_WORDS, 1e6), 3.0),
    Case(
        "lda float32, few updates",
        lambda **arguments: _lda(dtype=np.float32, max_doc_update_iter=4, schedule=RobbinsMonro(0.0, 0.5), **arguments),
        _documents,
        _hostile(N_WORDS),
        np.full(N_WORDS, 1e6),
        3.0,
    ),
    Case(
        "lda float32, long documents, sparse topics",
        lambda **arguments: _lda(
            n_components=12, vocabulary=MANY_WORDS, topic_word_prior=1e-3, dtype=np.float32, **arguments
        ),
        _long_documents,
        _hostile(MANY_WORDS),
        np.full(MANY_WORDS, 1e6),
        3.0,
        sparse=True,
    ),
    Case(
        "lda long documents",
        lambda **arguments: _lda(vocabulary=MANY_WORDS, **arguments),
        _long_documents,
        _hostile(MANY_WORDS),
        np.full(MANY_WORDS, 1e6),
        3.0,
    ),
    Case(
        "lda by EM",
        lambda **arguments: _lda(inference="em", dtype=np.float32, **arguments),
        _documents,
        _hostile(N_WORDS),
        np.full(N_WORDS, 1e6),
        3.0,
    ),
    Case(
        "lda resampled, public documents",
        lambda **arguments: _lda(
            document_length=20, public_documents=_documents(30, np.random.default_rng(7)), **arguments
        ),
        _documents,
        _hostile(N_WORDS),
        np.eye(1, N_WORDS)[0] * 50,
        3.0,
    ),
    _regression_case("logistic", BayesianLogisticRegression),
    _searched_case("logistic, searched", BayesianLogisticRegression, phase="scores", size=3.3, reach=0.6),
    _searched_case(
        "logistic sparse, three classes, searched",
        BayesianLogisticRegression,
        2,
        sparse=True,
        phase="scores",
        size=0.5,
        classes=(0, 1, 2),
    ),
    _searched_case(
        "logistic sparse, no intercept, searched",
        BayesianLogisticRegression,
        sparse=True,
        phase="scores",
        size=2.0,
        reach=0.6,
        fit_intercept=False,
    ),
    _exposed(
        _searched_case(
            "counts with exposures, searched",
            BayesianNegativeBinomialRegression,
            6,
            phase="scores",
            size=3.3,
            reach=0.6,
            dispersion=2.0,
            max_count=5,
        )
    ),
    _searched_case("logistic, zoom", BayesianLogisticRegression, phase="zoom"),
    _searched_case(
        "logistic sparse, no intercept, zoom",
        BayesianLogisticRegression,
        sparse=True,
        phase="zoom",
        fit_intercept=False,
    ),
    _searched_case("logistic, three classes, zoom", BayesianLogisticRegression, 2, phase="zoom", classes=(0, 1, 2)),
    _searched_case(
        "negative binomial sparse, last zoom",
        BayesianNegativeBinomialRegression,
        6,
        sparse=True,
        phase="last zoom",
        max_count=5,
    ),
    _exposed(
        _searched_case(
            "counts with exposures, last zoom", BayesianNegativeBinomialRegression, 6, phase="last zoom", max_count=5
        )
    ),
    _regression_case(
        "logistic paper, no intercept", BayesianLogisticRegression, statistics="paper", fit_intercept=False
    ),
    _regression_case("logistic sparse, three classes", BayesianLogisticRegression, 2, sparse=True, classes=(0, 1, 2)),
    _regression_case("logistic sparse", BayesianLogisticRegression, sparse=True, dtype=np.float32),
    _regression_case("logistic diagonal", BayesianLogisticRegression, covariance="diagonal", prior=2.0),
    _regression_case(
        "logistic, given prior", BayesianLogisticRegression, prior=Gaussian(np.arange(6.0) - 2.0, np.eye(6))
    ),
    _regression_case("logistic sparse diagonal", BayesianLogisticRegression, sparse=True, covariance="diagonal"),
    _regression_case("binomial", BayesianBinomialRegression, 4, n_trials=4),
    _linear_case("linear", model=OfMoments),
    _linear_case("linear sparse, no intercept", sparse=True, model=OfMoments, fit_intercept=False),
    _linear_case("linear, zoom", phase="zoom"),
    _linear_case("linear, searched", phase="scores", size=5.0, clip_norm=1.74),
    _linear_case("linear sparse, no intercept, searched", sparse=True, phase="scores", size=1.5, fit_intercept=False),
    Case(
        "principal components",
        lambda **arguments: ProbabilisticPCA(2, **({"max_norm": 1.5} | arguments)),
        _vectors,
        _hostile(N_FEATURES),
        np.full(N_FEATURES, 1e4),
        1.0,
    ),
    Case(
        "factors",
        lambda **arguments: FactorAnalysis(2, **({"max_norm": 1.5, "max_iter": 5} | arguments)),
        lambda n, rng: sp.csr_array(_vectors(n, rng)),
        _hostile(N_FEATURES),
        np.full(N_FEATURES, 1e4),
        1.0,
    ),
    _regression_case("negative binomial", BayesianNegativeBinomialRegression, 6, dispersion=2.0, max_count=5),
    _spatial_case("spatial counts", {0: [1], 1: [0, 2], 2: [1], 3: []}),
    _spatial_case("spatial counts, names that are not in order", {7: [70], 2: [70], 70: [2, 7]}),
    _mixed_effects_case("mixed effects", MixedLogisticRegression, random_effects=("intercept", 1)),
    _mixed_effects_case("mixed effects of counts", MixedNegativeBinomialRegression, 6, max_count=5, sparse=True),
    _mixed_effects_case(
        "mixed effects, last zoom", MixedLogisticRegression, phase="last zoom", random_effects=("intercept", 1)
    ),
    _mixture_case("mixture"),
    _mixture_case("mixture tied, EM", covariance_type="tied", inference="em"),
    _mixture_case("mixture diagonal, Student-t", sparse=True, covariance_type="diag", dof="learn"),
    _mixture_case("mixture spherical, Dirichlet", covariance_type="spherical", dof=3.0, **_DIRICHLET),
    Case(
        "proportions",
        lambda **arguments: DirichletMultinomial(prior=0.5, max_total=3.0, **arguments),
        lambda n, rng: rng.poisson(1.0, (n, N_FEATURES)).astype(float),
        _hostile(N_FEATURES),
        np.full(N_FEATURES, 1e4),
        3.0,
    ),
    Case(
        "proportions sparse",
        DirichletMultinomial,
        lambda n, rng: sp.csr_array(rng.poisson(0.5, (n, N_FEATURES))),
        _hostile(N_FEATURES),
        np.full(N_FEATURES, 1e4),
        1.0,
    ),
    Case(
        "latent classes",
        lambda **arguments: LatentClassAnalysis(**({"n_components": 4, "categories": LEVELS} | arguments)),
        _answers,
        _hostile(N_FEATURES),
        np.array([0.0, 4.0, 1.0, 0.0, 2.0]),
        0.6,
        has_missing=True,
        norm_factor=_as_if_answered,
    ),
    _chain_case("chain", 130),  # too many symbols for pairs, from which every fit of a few would compute its start
    _chain_case("chain of few symbols, float32", 4, dtype=np.float32),
    _gaussian_chain_case("gaussian chain"),
    _gaussian_chain_case("gaussian chain, diagonal, float32", covariance_type="diag", dtype=np.float32),
    Case(
        "poisson chain",
        lambda **arguments: PoissonHMM(2, max_count=6, max_length=MAX_LENGTH, **arguments),
        _sequences_of_counts,
        _hostile_steps(),
        np.resize([1e4, 0.0], (MAX_LENGTH, 3)),
        0.6,
        has_missing=True,
    ),
    Case(
        "chain of columns",
        lambda **arguments: ColumnHMM(2, columns=[(-2.0, 2.0), range(6), 3], max_length=MAX_LENGTH, **arguments),
        _sequences_of_columns,
        _hostile_steps(),
        np.resize([1e4, 1e4, 2.0], (MAX_LENGTH, 3)),
        0.6,
        has_missing=True,
    ),
    Case(
        "mixed classes",
        lambda **arguments: MixedLatentClassAnalysis(**({"n_components": 3, "columns": MIXED_COLUMNS} | arguments)),
        _mixed,
        _hostile(N_FEATURES),
        np.array([1e4, 1e4, 2.0, -1e4, 1.0]),
        0.6,
        has_missing=True,
    ),
    Case(
        "table of pairs",
        lambda **arguments: PrivateTable(
            **({"columns": TABLE_COLUMNS, "rules": TABLE_RULES, "n_bins": 4, "outcome": 4} | arguments)
        ),
        _mixed,
        _hostile(N_FEATURES),
        np.array([1e4, 1e4, 2.0, -1e4, 1.0]),
        0.6,
        has_missing=True,
    ),
    _gaussian_chain_case("factorial chain", model=FactorialHMM, max_iter=2),
    Case(
        "switching",
        lambda **arguments: SwitchingLinearDynamicalSystem(
            2, max_length=MAX_LENGTH, **({"max_norm": 3.0, "max_iter": 2} | arguments)
        ),
        _series,
        _hostile_series(),
        np.full((MAX_LENGTH, 2), 1e4),
        0.6,
        has_missing=True,
    ),
    Case(
        "dynamics",
        lambda **arguments: LinearDynamicalSystem(2, max_length=MAX_LENGTH, **({"max_norm": 3.0} | arguments)),
        _series,
        _hostile_series(),
        np.full((MAX_LENGTH, 2), 1e4),
        0.6,
        has_missing=True,
    ),
    _network_case("network"),
    _network_case("network sparse, normal prior", _sparse_coins, penalty="normal", max_iter=2),
    _network_case("network full", covariance="full"),
    _network_case("network of grey values", _vectors, binarize=0.0),
    # more hidden units than are updated at once
    _network_case("network of many units", n_components=18),
    _network_case("network full of many units", n_components=17, covariance="full"),
]

# Tables wider than what a kernel takes at a time.
WIDE_CASES = [
    Case("wide beta-bernoulli", BetaBernoulli, partial(_coins, width=WIDE), _hostile(WIDE), np.ones(WIDE), 1.5),
    Case(
        "wide latent classes",
        lambda **arguments: LatentClassAnalysis(**({"n_components": 9, "categories": LEVELS * 30} | arguments)),
        partial(_answers, levels=LEVELS * 30),
        _hostile(WIDE),
        np.resize([0.0, 4.0, 1.0, 0.0, 2.0], WIDE),
        0.6,
        has_missing=True,
        norm_factor=partial(_as_if_answered, levels=LEVELS * 30),
    ),
    Case(
        "wide proportions",
        lambda **arguments: DirichletMultinomial(prior=0.5, max_total=3.0, **arguments),
        lambda n, rng: rng.poisson(1.0, (n, WIDE)).astype(float),
        _hostile(WIDE),
        np.full(WIDE, 1e4),
        3.0,
    ),
    Case(
        "wide factors",
        lambda **arguments: FactorAnalysis(2, **({"max_norm": 1.5, "max_iter": 5} | arguments)),
        partial(_vectors, width=WIDE),
        _hostile(WIDE),
        np.full(WIDE, 1e4),
        1.0,
    ),
    _regression_case("wide logistic", BayesianLogisticRegression, width=WIDE),
    _regression_case("wide logistic sparse", BayesianLogisticRegression, sparse=True, width=WIDE),
    _regression_case("wide logistic diagonal", BayesianLogisticRegression, covariance="diagonal", width=WIDE),
    _linear_case("wide linear", width=40, model=OfMoments),
    _mixture_case("wide mixture", width=40),
    _mixture_case("wide mixture diagonal", sparse=True, covariance_type="diag", width=WIDE),
    _network_case("wide network", partial(_coins, width=WIDE), width=WIDE, n_components=18),
]

BY_NAME = {case.name: case for case in CASES + WIDE_CASES}

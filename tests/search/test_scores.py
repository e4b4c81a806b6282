"""The noisy score: a person moves it by at most half of the range, whatever the person's rows hold, and sees no one else."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import chi2

from tests.mutants import check_notices
from tests.search.cases import VOTES, votes
from vips import (
    BayesianBinomialRegression,
    BayesianLogisticRegression,
    BayesianNegativeBinomialRegression,
    CategoricalHMM,
    DirichletMultinomial,
    LatentDirichletAllocation,
    PrivacyPlan,
    SigmoidBeliefNetwork,
)
from vips.data import Sequences
from vips.models import _likelihood
from vips.privacy.mechanism.noise import Randomness
from vips.search import scores
from vips.search.scores import noisy_score, sum_over_persons, values_of_persons
from vips.search.split import Split

PLAN = PrivacyPlan(noise_multiplier=0.01, sampling="full", n_steps=2, clip_norm=1.0)
RNG = np.random.default_rng(0)
BITS = (RNG.random((60, 4)) < 0.5).astype(float)
TOPICS = LatentDirichletAllocation(2, vocabulary=4, privacy=PLAN, random_state=0)
CASES = {
    "logistic": (BayesianLogisticRegression(privacy=PLAN, max_norm=2.0), BITS, BITS[:, 0]),
    "words": (
        BayesianLogisticRegression(privacy=PLAN, max_norm=2.0, classes=["no", "yes"]),
        BITS,
        np.where(BITS[:, 0] > 0, "yes", "no").astype(object),
    ),
    "three classes": (
        BayesianLogisticRegression(privacy=PLAN, max_norm=2.0, classes=[0, 1, 2]), BITS, RNG.integers(0, 3, 60)
    ),
    "binomial": (BayesianBinomialRegression(n_trials=5, privacy=PLAN, max_norm=2.0), BITS, RNG.integers(0, 6, 60)),
    "counts": (
        BayesianNegativeBinomialRegression(privacy=PLAN, max_norm=2.0, max_count=9), BITS, RNG.integers(0, 9, 60)
    ),
    "topics": (TOPICS, RNG.poisson(2.0, (60, 4)), None),
    "sparse topics": (TOPICS, sp.csr_array(RNG.poisson(2.0, (60, 4))), None),
    "sequences": (
        CategoricalHMM(2, n_symbols=2, privacy=PLAN, random_state=0), Sequences.from_list([*BITS[:59], BITS[59, :2]]), None
    ),
    "network": (SigmoidBeliefNetwork(2, privacy=PLAN, random_state=0), BITS, None),
    "proportions": (DirichletMultinomial(privacy=PLAN), np.eye(4)[RNG.integers(0, 4, 60)], None),
}  # fmt: skip


def everyone(n: int) -> Split:
    return Split(np.arange(0), np.arange(n), None, np.arange(n))


def fitted_case(name):
    model, X, y = CASES[name]
    from sklearn.base import clone

    return clone(model).fit(X, y), X, y


@pytest.mark.parametrize("name", CASES)
def test_scores_of_every_model(name):
    """Each is a number within the range for most records, and the same alone and among others."""
    model, X, y = fitted_case(name)
    for score, score_range in model.score_ranges().items():
        values = values_of_persons(model, X, y, everyone(60), score, score_range)
        assert values.shape == (60,)
        assert ((values >= score_range[0]) & (values <= score_range[1])).all()
        assert (values > score_range[0]).mean() > 0.3
        for i in (0, 7, 59):
            alone = Split(np.arange(0), np.array([i]), None, np.array([0]))
            assert values_of_persons(model, X, y, alone, score, score_range)[0] == pytest.approx(values[i], abs=1e-9)


def test_likelihoods_are_those_of_scikit_learn_and_scipy():
    from scipy.stats import binom, nbinom
    from sklearn.metrics import log_loss

    model, X, y = fitted_case("logistic")
    own = values_of_persons(model, X, y, everyone(60), "log_likelihood", (-50.0, 0.0))
    assert -own.mean() == pytest.approx(log_loss(y, model.predict_proba(X)))
    hits = values_of_persons(model, X, y, everyone(60), "accuracy", (0.0, 1.0))
    assert hits.mean() == pytest.approx(model.score(X, y))
    model, X, y = fitted_case("binomial")
    own = values_of_persons(model, X, y, everyone(60), "log_likelihood", (-50.0, 0.0))
    assert own == pytest.approx(binom.logpmf(y, 5, model.predict(X) / 5))
    model, X, y = fitted_case("counts")
    own = values_of_persons(model, X, y, everyone(60), "log_likelihood", (-50.0, 0.0))
    r, mean = model.dispersion, model.predict(X)
    assert own == pytest.approx(nbinom.logpmf(y, r, r / (r + mean)))


def test_halves_of_a_document_do_not_depend_on_other_documents():
    from vips.models.topics.completion import alternate_words

    documents = sp.csr_array(np.array([[3.0, 0, 1, 2], [0, 0, 0, 0], [1, 1, 1, 1], [1e300, 1, 0, 5]]))
    observed, hidden = (each.toarray() for each in alternate_words(documents))
    assert (observed + hidden == documents.toarray()).all()
    assert observed[:3].tolist() == [[1, 0, 1, 1], [0, 0, 0, 0], [0, 1, 0, 1]]
    for i in range(4):
        assert (alternate_words(documents[[i]])[0].toarray() == observed[i]).all()


def test_a_document_has_the_same_score_to_the_last_bit_whatever_stands_before_it(monkeypatch):
    model, X, _ = fitted_case("topics")
    score_range = model.score_ranges()["log_likelihood"]

    def values(documents):
        return values_of_persons(model, documents, None, everyone(len(documents)), "log_likelihood", score_range)

    monkeypatch.setattr(_likelihood, "_BLOCK", 7)
    whole = values(X)
    for first in range(1, 8):
        assert values(X[first:]).tolist() == whole[first:].tolist()


def hostile_rows():
    yield "topics", np.array([-1.0, 0.5, np.nan, np.inf]), None
    yield "topics", np.full(4, 1e300), None
    yield "topics", np.zeros(4), None
    yield "logistic", np.full(4, np.nan), 0.0
    yield "logistic", np.full(4, 1e308), np.nan
    yield "logistic", np.zeros(4), 17.0
    yield "words", np.zeros(4), 17.0
    yield "words", np.full(4, np.inf), "maybe"
    yield "words", np.zeros(4), None
    yield "binomial", np.zeros(4), -3
    yield "counts", np.zeros(4), 10**6
    yield "network", np.array([0.3, -7.0, np.nan, 1e300]), None
    yield "proportions", np.array([-1.0, np.nan, 0, 0]), None


def check_a_person_moves_the_sum_by_half_of_the_range():
    for name, row, label in hostile_rows():
        model, X, y = fitted_case(name)
        more = np.vstack([X.astype(float), row])
        labels = None if y is None else np.append(y, np.array([label], dtype=y.dtype if y.dtype.kind == "O" else float))
        for score, score_range in model.score_ranges().items():
            half = 0.5 * (score_range[1] - score_range[0])
            sums = [
                scores.sum_over_persons(
                    values_of_persons(model, A, b, everyone(len(A)), score, score_range), score_range
                )
                for A, b in ((X.astype(float), y), (more, labels))
            ]
            assert abs(sums[1] - sums[0]) <= half * (1.0 + 1e-9), (
                f"{name}: a person moves {score} by more than half the range"
            )


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")  # a search silences its trials
def test_a_person_moves_the_sum_by_half_of_the_range():
    check_a_person_moves_the_sum_by_half_of_the_range()


def test_the_sum_counts_what_is_not_a_number_as_the_low_end():
    assert sum_over_persons(np.array([np.nan, -np.inf, np.inf, 0.5]), (0.0, 1.0)) == -0.5
    assert sum_over_persons(np.zeros(0), (0.0, 1.0)) == 0.0


class Own:
    """A score that records what it sees."""

    def __init__(self, answer=lambda X: 1.0):
        self.answer, self.seen = answer, []

    def __call__(self, model, X, y):
        self.seen.append((np.asarray(X).tolist(), None if y is None else np.asarray(y).tolist()))
        return self.answer(X)


def persons(held, numbers):
    return Split(np.arange(0), np.array(held, int), None, np.array(numbers, int))


def test_a_score_of_ones_own_sees_one_person_at_a_time():
    model, X, y = fitted_case("logistic")
    own = Own()
    values = values_of_persons(model, X, y, persons([1, 3, 4, 8], [0, 1, 0, 2]), own, (0.0, 2.0))
    assert values.tolist() == [1.0, 1.0, 1.0]
    rows = [[1, 4], [3], [8]]
    assert own.seen == [(X[each].tolist(), y[each].tolist()) for each in rows]
    assert values_of_persons(model, X, y, persons([], []), own, (0.0, 2.0)).shape == (0,)


def failing(kind):
    def answer(X):
        raise kind("quoting a record")

    return answer


@pytest.mark.parametrize(
    "answer",
    [failing(ValueError), failing(SystemExit), failing(MemoryError), failing(RecursionError), lambda X: "many", lambda X: None,
     lambda X: math.nan, lambda X: np.arange(3.0), lambda X: -math.inf],
)  # fmt: skip
def test_a_score_that_fails_is_the_low_end(answer):
    model, X, y = fitted_case("logistic")
    assert values_of_persons(model, X, y, persons([1, 3], [0, 1]), Own(answer), (-3.0, 2.0)).tolist() == [-3.0, -3.0]


def test_what_a_score_writes_on_the_model_is_lost():
    model, X, y = fitted_case("logistic")

    def score(model, X, y):
        seen = getattr(model, "seen", 0)
        model.seen = seen + 1
        return seen

    assert values_of_persons(model, X, y, persons([1, 3, 5], [0, 1, 2]), score, (0.0, 5.0)).tolist() == [0.0, 0.0, 0.0]
    assert not hasattr(model, "seen")


def check_what_a_score_changes_in_the_model_is_lost():
    """In place, too: arrays of the released model would hold a count of the persons who were scored."""
    search = votes(score=counting, score_range=(0.0, 5.0), candidates={"prior": [1.0]})
    seen.clear()
    best = search.fit(VOTES).best_estimator_
    assert set(seen) == {0}, "a score sees the one before"
    assert not hasattr(best.privacy_.plan, "seen")
    assert "seen" not in best.noisy_totals_.average, "the released model holds what a score wrote"


seen = []


def counting(model, X, y):
    total = model.noisy_totals_.average.setdefault("seen", np.zeros(1))
    seen.append(int(total[0]))
    total += 1
    return 0.0


def test_what_a_score_changes_in_the_model_is_lost():
    check_what_a_score_changes_in_the_model_is_lost()


def test_a_score_that_changes_a_shallow_copy_is_noticed(monkeypatch):
    monkeypatch.setattr(scores.copy, "deepcopy", scores.copy.copy)
    with pytest.raises(AssertionError, match="a score sees the one before"):
        check_what_a_score_changes_in_the_model_is_lost()


@pytest.mark.parametrize("low", [0.0, 1e9, -1e9, 1e12 - 1.0])
@pytest.mark.parametrize("width", [1e-3, 1e-6, 3e-7, 1.0])
def test_a_person_moves_the_sum_by_half_of_a_range_far_from_zero(low, width):
    score_range = (low, max(low + width, math.nextafter(low, math.inf)))
    for value in (*score_range, math.nan, 0.5 * sum(score_range)):
        assert abs(sum_over_persons(np.array([value]), score_range)) <= scores.half_width(score_range)


def test_a_person_is_the_average_of_its_rows():
    model, X, _ = fitted_case("proportions")
    alone = values_of_persons(model, X, None, everyone(60), "log_likelihood", (-3.0, 0.0))
    numbers = np.arange(60) // 3
    together = values_of_persons(model, X, None, persons(np.arange(60), numbers), "log_likelihood", (-3.0, 0.0))
    assert together == pytest.approx(alone.reshape(20, 3).mean(axis=1))


def check_noise_has_the_stated_size():
    plan = PrivacyPlan(noise_multiplier=3.0, sampling="full", n_steps=1, clip_norm=0.5)
    drawn = np.array([scores.noisy_score(np.zeros(0), (0.0, 1.0), plan) for _ in range(2000)])
    assert len(set(drawn)) == 2000, "two scores have the same noise"
    squares = (drawn**2).sum() / 1.5**2
    assert 1e-10 < chi2.cdf(squares, 2000) < 1.0 - 1e-10, "noise of a score has another size"


def test_noise_has_the_stated_size():
    check_noise_has_the_stated_size()


def scores_are_not_clipped(patch):
    def finite(values, score_range):
        return np.nan_to_num(values, nan=-1e6, posinf=1e6, neginf=-1e6)

    patch.setattr(scores, "_within", finite)
    patch.setattr(scores, "sum_over_persons", lambda values, score_range: finite(values, score_range).sum())


def a_defective_row_stops_the_sum(patch):
    def whole(fitted, X, y, name):
        values = scores._scored(fitted, X, y, name)
        assert np.isfinite(values).all(), "moves"
        return values

    patch.setattr(scores, "_values_of_rows", whole)


def noise_is_half_of_the_stated(patch):
    original = PrivacyPlan.noise_std
    patch.setattr(PrivacyPlan, "noise_std", lambda self: 0.5 * original(self))


def a_seed_is_shared_by_trials(patch):
    patch.setattr(PrivacyPlan, "randomness", lambda self, state: Randomness.for_fit(0, reproducible=True))


@pytest.mark.parametrize(
    ("mutant", "check", "says"),
    [
        (scores_are_not_clipped, check_a_person_moves_the_sum_by_half_of_the_range, "by more than half"),
        (a_defective_row_stops_the_sum, check_a_person_moves_the_sum_by_half_of_the_range, "moves"),
        (noise_is_half_of_the_stated, check_noise_has_the_stated_size, "another size"),
        (a_seed_is_shared_by_trials, check_noise_has_the_stated_size, "the same noise"),
    ],
)
def test_mutants_are_noticed(mutant, check, says, monkeypatch):
    check_notices(check, mutant, monkeypatch, says)


def test_noise_is_added_to_the_sum():
    plan = PrivacyPlan(noise_multiplier=1e-9, sampling="full", n_steps=1, clip_norm=0.5)
    assert noisy_score(np.array([1.0, 1.0, 0.0]), (0.0, 1.0), plan) == pytest.approx(0.5, abs=1e-6)

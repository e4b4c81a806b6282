"""Topics that are matched to released totals: do they hold the truth, and are the others refused?"""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.integrate import quad
from scipy.optimize import linear_sum_assignment
from scipy.stats import norm

import vips
from tests.mutants import check_notices
from vips import LatentDirichletAllocation, PrivacyPlan
from vips.datasets import make_lda_corpus
from vips.models.components.matching.steps import groups_of
from vips.models.topics import matching, nonnegative, slopes

N_TOPICS, N_WORDS, LENGTH, PRIOR = 3, 60, 50, 0.3
SWEEPS = matching._SWEEPS  # as users have


def corpus(n_documents=4000, length=LENGTH, prior=PRIOR, seed=1, n_words=N_WORDS):
    return make_lda_corpus(
        n_documents, n_topics=N_TOPICS, n_words=n_words, document_length=length, doc_topic_prior=prior, topic_word_prior=0.2,
        random_state=seed,
    )  # fmt: skip


def fitted(counts, noise_multiplier, n_steps=15, sampling=None, groups=None, **arguments):
    """At the default clip, which binds."""
    sampling = sampling or {"sampling": "full"}
    plan = PrivacyPlan(noise_multiplier=noise_multiplier, n_steps=n_steps, reproducible_noise=True, **sampling)
    settings = {"doc_topic_prior": PRIOR, "topic_word_prior": 0.2, "vocabulary": counts.shape[1], "random_state": 1}
    return LatentDirichletAllocation(N_TOPICS, privacy=plan, **settings | arguments).fit(counts, groups=groups)


def as_found(topics, mean, values=None):
    """The true topics, or values of theirs, in the order of the fit's."""
    distances = 2.0 - 2.0 * np.sqrt(mean) @ np.sqrt(topics).T
    rows, order = linear_sum_assignment(distances)
    assert distances[rows, order].max() < 0.2
    return (topics if values is None else values)[order]


def share_held(posterior, topics):
    topics = as_found(topics, posterior.mean)
    lower, upper = posterior.interval(0.95)
    return ((lower <= topics) & (topics <= upper))[topics > 1e-3].mean()


def fitted_to(documents):
    model = fitted(documents.counts, 6.0)
    model.truth = documents.topics
    return model


@pytest.fixture(scope="module")
def model():
    return fitted_to(corpus())


def test_estimates_are_nearer_than_those_of_the_fit(model):
    errors = [
        np.linalg.norm(of.mean - as_found(model.truth, of.mean)) for of in (model.posterior_, model.last_posterior_)
    ]
    assert errors[0] < 0.8 * errors[1]


def totals_at_the_truth(model, n_tokens=0, n_words=N_WORDS, n_documents=8_000):
    """Mean and squares of the deviations of totals from those of the true topics, in their variances."""
    groups, topics = groups_of(model), as_found(model.truth, model.last_posterior_.mean)
    values, noise_var = (np.vstack([getattr(g, of)["topic_word"] for g in groups]).T for of in ("totals", "noise_var"))
    x = np.maximum(topics, 1e-12) * as_found(model.truth, model.last_posterior_.mean, model.tokens)[:, None]
    law = slopes.Law(PRIOR * N_TOPICS, LENGTH)
    of = slopes.slopes_of(matching.Sight(model, groups), x, law, 0, n_documents, n_tokens)
    totals = matching._Totals(values, noise_var)
    residuals = values - np.einsum("vak,kv->va", of.mean, x)
    return np.einsum("va,vab,vb->v", residuals, totals.precision(of.cov), residuals).mean() / values.shape[1]


def check_totals_at_the_truth(n_words=N_WORDS, n_tokens=0, n_documents=8_000, **arguments):
    """Under little noise: the mean of χ² over its degrees."""
    documents = corpus(n_words=n_words)
    model = fitted(documents.counts, 1.0, **arguments)
    model.truth, model.tokens = documents.topics, documents.doc_topic.sum(axis=0) * LENGTH
    ratio = totals_at_the_truth(model, n_tokens, n_words, n_documents)
    assert 0.6 < ratio < 1.6, "other totals"


def the_clip_is_not_simulated(patch):
    factors = slopes.Sight.factors

    def unclipped(self, documents, turn):
        ratios, of_topics, steps = factors(self, documents, turn)
        return np.ones_like(ratios) * ratios.mean(), of_topics, steps

    patch.setattr(slopes.Sight, "factors", unclipped)


def a_document_sees_another_step(patch):
    factors = slopes.Sight.factors

    def other(self, documents, turn):
        ratios, of_topics, steps = factors(self, documents, turn)
        return ratios, of_topics, np.zeros_like(steps)

    patch.setattr(slopes.Sight, "factors", other)


def samples_are_forgotten(patch):
    init = slopes.Sight.__init__

    def forgetful(self, model, groups):
        init(self, model, groups)
        self.sampled = 0.0

    patch.setattr(slopes.Sight, "__init__", forgetful)


def tokens_have_another_topic(patch):
    draw = slopes.draw_documents

    def drawn(*given):
        indptr, words, counts, told, shares = draw(*given)
        told[1] = (told[1] + 1) % N_TOPICS
        return indptr, words, counts, told, shares

    patch.setattr(slopes, "draw_documents", drawn)


def check_rare_words():
    """Words that are put into documents give the totals of records."""
    check_totals_at_the_truth(n_words=150, n_tokens=300, n_documents=400)


def check_samples():
    """Sampled steps have more variance."""
    check_totals_at_the_truth(sampling={"sampling_rate": 0.1}, n_steps=12)


def check_counts():
    """Counts of one word of one topic, against numerical integration."""
    for centre, sd in ((30.0, 10.0), (3.0, 5.0), (-20.0, 10.0)):
        base, q = 40.0, sd**-2
        n = 30_000
        moments = nonnegative.draw_counts(
            np.full((1, 1, 1), q), np.full((1, 1), centre * q), np.array([base]), np.ones((1, 1)), n, 100, 0
        )

        def density(x, centre=centre, sd=sd, base=base):
            means = base * nonnegative._SCALES
            return norm.pdf(x, centre, sd) * (np.exp(-x / means) / means).mean()

        points = [1e-3, 0.1, 1.0, 4.0, 16.0, max(centre, 1.0)]
        whole, first, root = (
            quad(lambda x, p=p: x**p * density(x), 0.0, max(centre, 0.0) + 12.0 * sd, points=points, limit=500)[0]
            for p in (0.0, 1.0, 0.5)
        )
        assert moments[0][0, 0] == pytest.approx(first / whole, rel=0.05), "other counts"
        assert moments[2][0, 0] == pytest.approx(root / whole, rel=0.05), "other counts"


@pytest.mark.parametrize("check", [check_totals_at_the_truth, check_rare_words, check_samples, check_counts])
def test_simulated_totals_are_those_of_records(check):
    check()


def counts_may_be_below_zero_a_little(patch):
    draw = nonnegative.draw_counts

    def shifted(precision, linear, base, x, *arguments):
        return draw(precision, linear - precision[:, :, 0] * 2.0, base, x, *arguments)

    patch.setattr(nonnegative, "draw_counts", shifted)


@pytest.mark.parametrize(
    ("check", "mutant", "says"),
    [
        (check_totals_at_the_truth, the_clip_is_not_simulated, "other totals"),
        (check_totals_at_the_truth, a_document_sees_another_step, "other totals"),
        (check_totals_at_the_truth, tokens_have_another_topic, "other totals"),
        (check_rare_words, tokens_have_another_topic, "other totals"),
        (check_samples, samples_are_forgotten, "other totals"),
        (check_counts, counts_may_be_below_zero_a_little, "other counts"),
    ],
)
def test_mutants_are_noticed(check, mutant, says, monkeypatch):
    check_notices(check, mutant, monkeypatch, says)


@pytest.mark.slow
def test_what_people_read_and_files(model, tmp_path):
    assert model.findings()["misfit of the released totals (standard deviations)"] == model.match().misfit
    (part,) = model.posterior_parts(model.posterior_)
    assert part.distribution.mean.shape == (N_TOPICS, N_WORDS)
    model.save(tmp_path / "topics.vips")
    again = vips.load(tmp_path / "topics.vips").posterior_
    np.testing.assert_array_equal(again.rate_mean, model.posterior_.rate_mean)
    np.testing.assert_array_equal(again.rate_var, model.posterior_.rate_var)


def test_summary_has_the_limits_of_the_match(model):
    table = model.summary(3, level=0.9)
    assert table["share"].is_monotonic_decreasing
    assert table["share"].sum() == pytest.approx(1.0)
    assert list(table["label"]) == [model.evidence().labels[k] for k in table.index]
    mean, (lower, upper), names = model.posterior_.mean, model.posterior_.interval(0.9), model.column_names()
    for k, words in table["top words"].items():
        for text, v in zip(words.split(", "), np.argsort(-mean[k])[:3], strict=True):
            assert text == f"{names[v]} {mean[k, v]:.2g} ({lower[k, v]:.2g} to {upper[k, v]:.2g})"


@pytest.mark.slow
def test_groups_of_steps_that_contradict_each_other_are_refused():
    refused = fitted(corpus(2000).counts, 1.0)
    steps = [
        replace(step, totals={"topic_word": step.totals["topic_word"][:, ::-1]}) if step.number > 9 else step
        for step in refused.noisy_totals_.steps
    ]
    refused.noisy_totals_ = replace(refused.noisy_totals_, steps=tuple(steps))
    assert "not those of such records" in refused.why_no_intervals()
    assert refused.match().misfit > 3.0


def test_topics_that_noise_hides_are_said():
    hidden = fitted(sp.csr_array((20, 40), dtype=int), 5.0, n_steps=2)
    assert "Noise hides 3 of the 3 topics (0, 1, 2)" in hidden.why_no_intervals()
    single = fitted(sp.csr_array((20, 40), dtype=int), 5.0, n_steps=5)
    assert "Noise hides all topics" in single.why_no_intervals()


def test_fits_without_noise_of_persons_of_one_step_and_of_too_many_words_have_no_match():
    counts = corpus(200).counts
    with pytest.raises(NotImplementedError, match="kept"):
        LatentDirichletAllocation(2, vocabulary=N_WORDS).fit(counts).match()
    with pytest.raises(NotImplementedError, match="person"):
        fitted(counts, 1.0, groups=np.arange(200) // 4).match()
    with pytest.raises(NotImplementedError, match="two steps"):
        fitted(counts, 1.0, n_steps=1).match()
    many = fitted(sp.csr_array((3, 400_000), dtype=int), 1.0, n_steps=2)
    assert not many.noisy_totals_.steps
    with pytest.raises(NotImplementedError, match="without too many totals"):
        many.match()


def test_one_topic_is_the_frequencies_of_words():
    counts = corpus(1000).counts
    plan = PrivacyPlan(noise_multiplier=1.0, sampling="full", n_steps=5, reproducible_noise=True)
    model = LatentDirichletAllocation(1, vocabulary=N_WORDS, privacy=plan, random_state=0).fit(counts)
    frequencies = counts.sum(axis=0) / counts.sum()
    np.testing.assert_allclose(model.posterior_.mean[0], frequencies, atol=0.01)


# -- about half as many documents as users generate -----------------------------------------------------------------


@pytest.mark.slow
def test_intervals_hold_the_truth_where_those_of_the_fit_miss_it(many_generated_documents):
    model = fitted_to(corpus())
    posterior, naive = model.posterior_, model.last_posterior_
    assert share_held(posterior, model.truth) > 0.85
    assert share_held(naive, model.truth) < 0.7
    assert posterior.std.mean() < 2.5 * np.sqrt(naive.var.mean())  # not bought with width
    errors = [np.linalg.norm(of.mean - as_found(model.truth, of.mean)) for of in (posterior, naive)]
    assert errors[0] < 0.5 * errors[1]


RESIZED = {"document_length": 30}


@pytest.mark.slow
@pytest.mark.usefixtures("many_generated_documents")
@pytest.mark.parametrize(
    "arguments",
    [{"sampling": {"sampling_rate": 0.5}, "n_steps": 30}, RESIZED, RESIZED | {"length_method": "scale"}],
    ids=["sampled", "resampled", "scaled"],
)
def test_samples_and_resized_documents_are_matched_too(arguments, monkeypatch):
    monkeypatch.setattr(matching, "_SWEEPS", SWEEPS)
    documents = corpus(seed=2)
    assert share_held(fitted(documents.counts, 6.0, **arguments).posterior_, documents.topics) > 0.8


@pytest.mark.slow
@pytest.mark.usefixtures("many_generated_documents")
def test_concentration_and_length_are_told_by_the_totals():
    """Stated is 0.9, and 70 where nothing is known."""
    assert 1.1 < fitted(corpus(8000, prior=0.45).counts, 6.0).match().concentration < 1.7
    assert 15.0 < fitted(corpus(8000, length=25).counts, 3.0, n_steps=40).match().length < 45.0


@pytest.mark.slow
@pytest.mark.usefixtures("many_generated_documents")
def test_documents_of_few_words_have_no_intervals():
    short = fitted(corpus(20_000, length=6).counts, 0.5, n_steps=30)
    assert short.match().length < 12.0
    assert "Documents seem to have about" in short.why_no_intervals()

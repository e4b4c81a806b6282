"""Public documents: the start, the prior, and what remains where noise hides the private ones."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import vips
from tests.known_bits import cached
from vips import LatentDirichletAllocation, PrivacyLedger, PrivacyPlan
from vips.datasets import make_lda_corpus
from vips.models.topics import lda, public_prior
from vips.models.topics.public_prior import denoise_with_public

N_TOPICS, N_WORDS = 6, 150
CORPUS = make_lda_corpus(
    6000, n_topics=N_TOPICS, n_words=N_WORDS, document_length=60, doc_topic_prior=0.1, topic_word_prior=0.1, random_state=0
)  # fmt: skip
PUBLIC, TEST, PRIVATE = np.split(sp.csr_array(CORPUS.counts).toarray(), [400, 900])
OTHER_KIND = PUBLIC[:, np.random.default_rng(1).permutation(N_WORDS)]


def model(public=PUBLIC, plan=None, **settings):
    settings = {"random_state": 0} | settings
    return LatentDirichletAllocation(N_TOPICS, vocabulary=N_WORDS, privacy=plan, public_documents=public, **settings)


def private_plan(epsilon, **settings):
    return PrivacyPlan.from_epsilon(epsilon=epsilon, delta=1e-5, sampling="full", n_steps=12, **settings)


def test_without_noise_public_documents_count_as_much_as_private_ones(monkeypatch):
    """From the same start, steps are those of a fit to both together."""
    start = np.random.default_rng(0).gamma(2.0, 20.0, (N_TOPICS, N_WORDS))
    monkeypatch.setattr(lda.LatentDirichletAllocation, "initial", lambda self, rng: {"topic_word": start})
    plan, settings = PrivacyPlan.non_private(sampling_rate=1.0, n_steps=6), {"dtype": np.float64}
    added = model(PUBLIC, plan, **settings).fit(PRIVATE[:500])
    together = model(None, plan, **settings).fit(np.concatenate([PRIVATE[:500], PUBLIC]))
    np.testing.assert_allclose(added.components_, together.components_, rtol=1e-9)


SEEDS = range(4)  # starts end in different optima, which predict documents of another kind more or less badly
KINDS = {"the same kind": PUBLIC, "another kind": OTHER_KIND}


@cached
def perplexity_of_public_documents_alone(kind):
    return np.median([model(None, random_state=seed).fit(KINDS[kind]).perplexity(TEST) for seed in SEEDS])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.representatives("20-0.1-another kind")
@pytest.mark.parametrize(("n_documents", "epsilon"), [(20, 0.1), (500, 0.1), (500, 1.0)])
def test_a_fit_is_not_worse_than_the_public_documents_alone(kind, n_documents, epsilon):
    plan, private = private_plan(epsilon), PRIVATE[:n_documents]
    perplexities = [model(KINDS[kind], plan, random_state=seed).fit(private).perplexity(TEST) for seed in SEEDS]
    assert np.median(perplexities) < 1.02 * perplexity_of_public_documents_alone(kind)


@pytest.mark.slow
def test_public_documents_help_and_those_of_another_kind_are_given_up():
    plan = private_plan(1.0)
    without, helped, given_up = (
        np.median([model(public, plan).fit(PRIVATE[:1500]).perplexity(TEST) for _ in range(3)])
        for public in (None, PUBLIC, OTHER_KIND)
    )
    assert helped < 0.97 * without
    assert given_up < 1.2 * without  # 1.6 times as much if they counted as of the same kind


def test_the_weight_is_that_of_noisy_totals_that_agree():
    rng = np.random.default_rng(0)
    counts = 3e4 * CORPUS.topics * rng.uniform(0.5, 1.5, (N_TOPICS, 1))
    public = rng.poisson(0.05 * counts)
    for std, other, expected in ((5.0, False, 1.0), (5.0, True, 0.2), (1e5, False, 1.0), (1e5, True, 1.0)):
        noisy = counts + std * rng.normal(size=counts.shape)
        shown = public[:, rng.permutation(N_WORDS)] if other else public
        denoised, weight = denoise_with_public(noisy, np.full(counts.shape, std), shown)
        assert weight <= expected if other and std == 5.0 else weight == expected
        assert (denoised >= 0.0).all()
        if std == 5.0:
            assert np.abs(denoised - counts).mean() < np.abs(noisy - counts).mean()
        else:
            assert denoised.sum() < 0.05 * public.sum()  # nothing is known of the private counts


def test_public_documents_meet_noisy_totals_only(monkeypatch):
    seen = []
    original = public_prior.denoise_with_public
    monkeypatch.setattr(
        lda, "denoise_with_public", lambda *given: seen.append([array.copy() for array in given]) or original(*given)
    )
    fitted = model(PUBLIC, private_plan(1.0)).fit(PRIVATE[:300])
    assert len(seen) == 12
    noisy, noise_std, public = seen[-1]
    totals = fitted.noisy_totals_
    scale = fitted.last_posterior_.average_scale
    np.testing.assert_array_equal(noisy, totals.average["topic_word"] / scale)
    np.testing.assert_array_equal(noise_std, totals.noise_std["topic_word"] / scale)
    assert public.sum() == pytest.approx(PUBLIC.sum())


def test_the_report_names_them_and_files_keep_them(tmp_path):
    fitted = model(sp.csr_array(PUBLIC), private_plan(1.0)).fit(PRIVATE[:300])
    assert "400 public documents" in fitted.privacy_.declared_public
    fitted.save(tmp_path / "model.vips")
    loaded = vips.load(tmp_path / "model.vips")
    np.testing.assert_array_equal(loaded.public_documents.toarray(), PUBLIC)
    np.testing.assert_array_equal(loaded.components_, fitted.components_)
    assert clone(loaded).public_documents.shape == PUBLIC.shape


def test_what_is_not_known_with_public_documents_is_not_said():
    fitted = model(PUBLIC, private_plan(1.0)).fit(PRIVATE[:300])
    assert fitted.evidence() is None
    assert "public_documents" in fitted.why_no_intervals()
    assert fitted.top_words(3)


@pytest.mark.parametrize(
    ("public", "message"),
    [
        (PUBLIC[:, :-1], "150 columns, one for each word"),
        (PUBLIC[0], "must be a matrix"),
        (PUBLIC[:0], "at least one row"),
        (-PUBLIC, "Negative values"),
        (np.where(PUBLIC > 3, np.inf, PUBLIC), "finite"),
    ],
)
def test_bad_public_documents_are_refused(public, message):
    with pytest.raises(ValueError, match=message):
        model(public, private_plan(1.0)).fit(PRIVATE[:50])


def test_public_documents_charge_nothing(tmp_path):
    with PrivacyLedger(tmp_path / "l.ledger", dataset="letters", epsilon=10.0, delta=1e-5) as ledger:
        model(PUBLIC, private_plan(1.0)).fit(PRIVATE[:100])
    assert [run.charged for run in ledger.runs()] == [12]

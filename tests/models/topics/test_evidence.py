"""Labels of topics: real ones match true topics, and documents without topics show none."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from vips import LatentDirichletAllocation, PrivacyLedger, PrivacyPlan, StreamPlan, compare, load
from vips.datasets import make_lda_corpus
from vips.models._apart import copy_of, stream_apart
from vips.models.topics import evidence
from vips.models.topics.evidence import deviations

N_WORDS = 200
PLAN = PrivacyPlan(noise_multiplier=1.0, sampling="full", n_steps=20, reproducible_noise=True)


def frequencies(n_words=N_WORDS):
    shares = 1.0 / np.arange(1.0, n_words + 1.0)
    return shares / shares.sum()


def fitted(topics, n_components=6, n=4000, plan=PLAN, **settings):
    documents = make_lda_corpus(n, topics=topics, document_length=60, random_state=0).counts
    settings = {"vocabulary": topics.shape[1], "privacy": plan, "random_state": 0} | settings
    model = LatentDirichletAllocation(n_components, **settings)
    return model.fit(documents)


@pytest.fixture(scope="module")
def truth():
    return thirds(N_WORDS)


@pytest.fixture(scope="module")
def model(truth):
    return fitted(truth)


def likeness(model, truth):
    """Correlation of each topic with the true one that is most like it, in roots of probabilities less those of all words."""
    probabilities = model.components_ / model.components_.sum(axis=1, keepdims=True)
    ours, theirs = (
        np.sqrt(rows) - np.sqrt(weights @ rows)
        for rows, weights in (
            (probabilities, model.components_.sum(axis=1) / model.components_.sum()),
            (truth, np.full(len(truth), 1.0 / len(truth))),
        )
    )
    ours, theirs = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (ours, theirs))
    return (ours @ theirs.T).max(axis=1)


def test_real_topics_match_true_ones_and_others_do_not_stand_out(model, truth):
    topics = model.evidence()
    is_real = np.array(topics.labels) == "real"
    assert is_real.sum() >= 3
    assert (likeness(model, truth)[is_real] > 0.4).all()  # the rule of docs/texts.md
    assert (topics.deviation[is_real] > topics.deviation_of_noise).all()
    assert (topics.p_value[is_real] == topics.p_value.min()).all()
    assert (topics.stability >= 0.0).all()
    assert (topics.stability <= 1.0).all()
    assert str(topics).startswith(f"6 topics: {is_real.sum()} real, ")


@pytest.mark.parametrize("noise_multiplier", [10.0, 40.0])
@pytest.mark.repeated("10.0")
def test_documents_without_topics_show_none(noise_multiplier):
    """They have a thousand words."""
    plan = replace(PLAN, noise_multiplier=noise_multiplier)
    topics = fitted(frequencies(1000)[None, :], plan=plan).evidence()
    assert "real" not in topics.labels


def thirds(n_words):
    """Three topics, with a third of the words each."""
    topics = np.tile(frequencies(n_words), (3, 1))
    for k in range(3):
        topics[k, np.arange(n_words) % 3 != k] *= 0.01
    return topics / topics.sum(axis=1, keepdims=True)


@pytest.mark.slow
def test_parts_of_real_topics_are_no_noise():
    """Twelve topics are fitted to three: some stand out no more than noise does."""
    model = fitted(thirds(600), n_components=12, plan=replace(PLAN, noise_multiplier=10.0))
    topics = model.evidence()
    assert (topics.p_value > 0.5).any()
    assert set(topics.labels) == {"real", "doubtful"}


@pytest.mark.slow
def test_few_words_show_no_noise():
    plan = replace(PLAN, noise_multiplier=10.0)
    labels = [fitted(frequencies(n_words)[None, :], plan=plan).evidence().labels for n_words in (1000, 400)]
    assert ["noise" in of for of in labels] == [True, False]


def streamed(topics, decay=1.0):
    """Twelve batches of 500 documents."""
    documents = make_lda_corpus(6000, topics=topics, document_length=60, random_state=0).counts
    plan = StreamPlan(epsilon=4.0, delta=1e-6, n_batches=12, decay=decay)
    model = LatentDirichletAllocation(6, vocabulary=topics.shape[1], privacy=plan, random_state=0)
    for batch in np.split(np.arange(6000), 12):
        model.partial_fit(documents[batch])
    return model


@pytest.mark.slow
@pytest.mark.parametrize("decay", [1.0, 0.8])
def test_topics_of_streams_are_real_if_documents_have_some(truth, decay):
    """They stand beside topics of generated streams, which see each document once, too."""
    model = streamed(truth, decay)
    is_real = np.array(model.evidence().labels) == "real"
    assert is_real.sum() >= 2
    assert (likeness(model, truth)[is_real] > 0.4).all()
    assert streamed(frequencies(1000)[None, :], decay).evidence().labels.count("real") <= 1


def test_a_generated_stream_is_a_stream(truth):
    """As many words as in ``partial_fit``, and the noise that it says."""
    documents = make_lda_corpus(600, topics=truth, document_length=60, random_state=0).counts
    batches = np.split(np.arange(600), 3)
    plan = StreamPlan(epsilon=np.inf, delta=1e-6, n_batches=3, decay=0.9)
    model = LatentDirichletAllocation(3, vocabulary=N_WORDS, privacy=plan, random_state=0)
    for batch in batches:
        model.partial_fit(documents[batch])
    assert model.evidence() is None  # without noise
    noisy = replace(plan, epsilon=1.0, clip_norm=1e6)
    copies = [
        stream_apart(
            copy_of(model, privacy=noisy), [documents[batch] for batch in batches], std, np.random.default_rng(1)
        )
        for std in (1e-9, 5.0)
    ]
    counts = evidence._released_counts(copies[0])[0]  # without their scales
    assert copies[1].noisy_totals_.noise_std["topic_word"] == pytest.approx(5.0)
    assert counts.sum() == pytest.approx(model.noisy_totals_.average["topic_word"].sum(), rel=0.1)
    empty = [documents[:0]] * 3
    noise = stream_apart(copy_of(model, privacy=noisy), empty, 5.0, np.random.default_rng(2)).noisy_totals_
    assert np.std(noise.average["topic_word"]) == pytest.approx(5.0, rel=0.15)  # 600 draws: five deviations


@pytest.mark.slow
def test_resized_documents_show_topics_only_if_they_have_some(truth):
    """Drawing the words of a document again makes topics, too, so the generated documents are resized like the others."""
    without = fitted(frequencies()[None, :], n=2000, document_length=30).evidence()
    assert "real" not in without.labels
    assert fitted(truth, document_length=30).evidence().labels.count("real") >= 3


def test_generated_documents_have_no_more_words_than_were_released():
    rng = np.random.default_rng(0)
    whole = evidence._lengths(1e9, None, rng, 300)
    assert len(whole) == 300
    assert evidence._lengths(4000.0, None, rng, 300).sum() <= 4000
    assert len(evidence._lengths(1e9, 7, rng, 300)) == len(whole)
    assert len(evidence._lengths(700.0, 7, rng, 300)) in (99, 100)
    assert len(evidence._lengths(0.0, 7, rng, 300)) == evidence._FEWEST_DOCUMENTS


def test_noise_of_any_size_has_evidence():
    for noise in (1e-9, 1e12):
        assert (
            len(fitted(frequencies()[None, :], n=40, plan=replace(PLAN, noise_multiplier=noise)).evidence().labels) == 6
        )


def test_topics_made_of_noise_are_not_real(truth):
    topics = fitted(
        truth, plan=PrivacyPlan(noise_multiplier=1000.0, sampling="full", n_steps=20, reproducible_noise=True)
    ).evidence()
    assert "real" not in topics.labels


def test_deviations_of_pure_noise_are_standard():
    """Without a signal, no row is far from the frequencies, whatever its share of the words, and nothing of it is stable."""
    rng, std = np.random.default_rng(0), np.linspace(1.0, 3.0, 5000) * np.array([[1.0], [2.0], [0.5]])
    exact = np.outer([0.9, 0.05, 0.05], np.full(5000, 1000.0))
    largest, stability = deviations(exact + std * rng.normal(size=exact.shape), std)
    assert (np.abs(largest - 3.1) < 0.5).all()  # the mean of the ten largest of 5,000 normal numbers
    assert (np.abs(stability) < 0.1).all()


def test_stability_is_the_correlation_of_two_draws():
    rng, std = np.random.default_rng(1), np.full((4, 2000), 30.0)
    exact = rng.gamma(2.0, 100.0, (4, 2000))
    draws = [exact + std * rng.normal(size=exact.shape) for _ in range(2)]
    weight = 1.0 / np.sqrt(exact.sum(axis=0))
    rows = []
    for draw in draws:
        shares = draw.sum(axis=1) / draw.sum()
        rows.append((draw - np.outer(shares, draw.sum(axis=0))) * weight)
    correlation = [np.corrcoef(one, other)[0, 1] for one, other in zip(*rows, strict=True)]
    np.testing.assert_allclose(deviations(draws[0], std)[1], correlation, atol=0.05)


@pytest.mark.slow
def test_labels_are_shown(model, tmp_path):
    labels = model.evidence().labels
    frame = model.top_words(3, as_frame=True)
    assert frame["label"].tolist() == [label for label in labels for _ in range(3)]
    titles = [axes.get_title() for axes in model.plot_topics(3)]
    assert all(title.endswith(f", {label}") for title, label in zip(titles, labels, strict=True))
    model.to_html(tmp_path / "topics.html")
    page = (tmp_path / "topics.html").read_text(encoding="utf-8")
    assert str(model.evidence()) in page
    assert page.count(", real:</small>") == labels.count("real")
    other = fitted(np.tile(frequencies(), (3, 1)), n=300)
    assert compare(model, other)["number of real topics"].private == labels.count("real")


def test_labels_cost_no_budget_and_are_the_same_wherever_the_model_is(model, tmp_path):
    ledger = PrivacyLedger(tmp_path / "letters.ledger", 1.0, 1e-5, "letters")
    model.save(tmp_path / "model.vips")
    with ledger:
        topics = load(tmp_path / "model.vips").evidence()
    assert ledger.runs() == []
    for other in (topics, pickle.loads(pickle.dumps(model)).evidence()):
        assert other.labels == model.evidence().labels
        np.testing.assert_array_equal(other.deviation, model.evidence().deviation)
        assert other.deviation_of_noise == model.evidence().deviation_of_noise


def test_evidence_is_that_of_the_last_fit(truth):
    model = fitted(truth, n=1000)
    first = model.evidence()
    documents = make_lda_corpus(1000, topics=frequencies()[None, :], document_length=60, random_state=1).counts
    assert model.fit(documents).evidence() is not first
    assert "real" not in model.evidence().labels


def test_no_labels_without_noise_or_with_one_topic(truth):
    documents = make_lda_corpus(300, topics=truth, document_length=60, random_state=0).counts
    exact = LatentDirichletAllocation(3, vocabulary=N_WORDS, random_state=0).fit(documents)
    one = LatentDirichletAllocation(1, vocabulary=N_WORDS, privacy=PLAN).fit(documents)
    for model in (exact, one):
        assert model.evidence() is None
        assert "label" not in model.top_words(2, as_frame=True)
        assert "number of real topics" not in model.findings()
    assert list(exact.summary(2)) == ["share", "top words"]
    assert "(" not in exact.summary(2)["top words"][0]
    assert list(one.summary()) == ["share", "top words"]
    assert " to " in one.summary()["top words"][0]

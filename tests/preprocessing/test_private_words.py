"""The private vocabulary: one record moves the totals by one clip, rare words stay hidden, all else is post-processing."""

import math
import pickle
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp
from scipy.stats import binomtest, norm
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer

from tests.releases import releases
from vips import PrivacyBudgetError, PrivacyLedger, PrivacyPlan
from vips.core.mechanism.secret_bits import secret_bits
from vips.preprocessing import PrivateCountVectorizer, _documents, _private_words, _set_union
from vips.preprocessing._set_union import noisy_union, plans_of_rounds, rounds_of, thresholds
from vips.tools.auditing.canaries import lower_bound

PLAN = PrivacyPlan(noise_multiplier=2.0, sampling="full", n_steps=1)
ROUNDS = rounds_of(replace(PLAN, clip_norm=1.0), 1e-6, 300, 1)
EXACT = PrivacyPlan(noise_multiplier=1e-9, sampling="full", n_steps=1)
COMMON = ["the ship sails home", "a storm at sea", "the ship was lost at sea"] * 100


def vectorizer(plan=PLAN, threshold_delta=1e-6, **settings):
    return PrivateCountVectorizer(privacy=plan, threshold_delta=threshold_delta, **settings)


def totals_of(documents, groups=None, plan=PLAN, known=(), **settings):
    """Exact totals by word, after a round that has released the ``known`` words: what the noise is added to."""
    index, totals, counted = [], {}, _private_words.counted_records

    def watched(*arguments):
        index.append(arguments[4])
        return counted(*arguments[:6], {*arguments[6], *known})

    def union(chunks, rounds, most, count_records, release):
        names = list(index[-1])
        released = np.array([name in known for name in names], bool)
        for words, starts in chunks:
            shares = _set_union._shares(words, starts, released, most, np.random.default_rng(secret_bits(128)))
            for word, weight in zip(*shares, strict=True):
                totals[names[word]] = totals.get(names[word], 0.0) + weight
        return _set_union.Union(tuple(([], np.zeros(0)) for _ in rounds), None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_private_words, "counted_records", watched)
        patch.setattr(_private_words, "noisy_union", union)
        vectorizer(plan, **settings).fit(documents, groups=groups)
    return totals


def distance(one, other):
    return math.sqrt(sum((one.get(word, 0.0) - other.get(word, 0.0)) ** 2 for word in {*one, *other}))


RECORDS = {
    "one word": ["zebra"], "many words": [" ".join(f"w{i}" for i in range(900))], "one word very often": ["sea " * 5000],
    "known and new words": ["the ship of zebras"], "nothing": [""],
    "several documents": ["the ship", "the sea", "zebra zebra", "a b c", "the ship"], "no text": [None],
}  # fmt: skip


PHRASES = {
    "one phrase": ["the sea"], "a phrase of its own": ["sea the"], "one phrase often": ["the sea " * 5000],
    "several documents": ["the sea", "sea the", "the the", "the sea"], "unknown words between": ["the zebra sea"],
    "phrases of both": ["the sea the ship sea sea"], "hostile": ["the\x00 \ud800 sea the", None], "nothing": [""],
}  # fmt: skip


def totals_of_phrases(totals_of, *arguments, known):
    """Totals of phrases of two words alone: those of a fit without phrases are taken away."""
    with_words, words = (totals_of(*arguments, known=known, ngram_range=(1, n)) for n in (2, 1))
    return {name: total for name, total in with_words.items() if name not in words}


@pytest.mark.parametrize("known", [("the", "sea"), ("the", "sea", "the sea")])
def test_a_record_moves_the_totals_of_phrases_by_at_most_one_clip(known):
    check_phrases(totals_of, known)


def check_phrases(totals_of, known):
    ids = [f"p{i}" for i in range(len(COMMON))]
    before = totals_of_phrases(totals_of, COMMON, ids, known=known)
    for name, documents in PHRASES.items():
        after = totals_of_phrases(totals_of, COMMON + documents, ids + ["new"] * len(documents), known=known)
        moved = distance(before, after)
        assert moved <= 1.0 + 1e-9, f"{name}: a record moves the totals of phrases by {moved}"
        assert {word for phrase in after for word in phrase.split()} <= {*known}, (
            "a phrase has a word that is not released"
        )
        assert not {*known} & {*after}, "a known phrase has a share"


def test_a_record_moves_the_totals_by_at_most_one_clip():
    ids = [f"p{i}" for i in range(len(COMMON))]
    for known in ((), ("the", "sea")):
        before = totals_of(COMMON, ids, known=known)
        for name, documents in RECORDS.items():
            after = totals_of(COMMON + documents, ids + ["new"] * len(documents), known=known)
            moved = distance(before, after)
            assert moved <= 1.0 + 1e-9, f"{name}: a record moves the totals by {moved}"
            assert not set(known) & set(after), "a known word has a share"
            if len(documents) == 1:
                alone = distance(before, totals_of(COMMON + documents, known=known))
                assert alone == pytest.approx(moved), f"{name}: a document moves the totals by {alone}"


def test_shares_are_one_over_root_n_whatever_the_counts():
    totals = totals_of(["a1 b2 c3 c3", "a1"] + [""] * 3)
    assert totals == pytest.approx({"a1": 1.0 + 3**-0.5, "b2": 3**-0.5, "c3": 3**-0.5})
    many = totals_of([" ".join(f"w{i}" for i in range(50))], max_words=10)
    assert sorted(many.values()) == pytest.approx([10**-0.5] * 10)


def test_the_second_round_leaves_known_words_out():
    chunks = [(np.array([0, 1, 0, 2, 3]), np.array([0, 2, 5]))]
    with releases(lambda total: {"words": np.where(total["words"] > 1.0, 1e9, -1e9)}) as seen:
        (first, _), (second, _) = noisy_union(chunks, ROUNDS, 300).rounds
    assert first.tolist() == [0]
    assert second.tolist() == []
    np.testing.assert_allclose(seen[0].exact["words"], [2**-0.5 + 3**-0.5, 2**-0.5, 3**-0.5, 3**-0.5])
    np.testing.assert_allclose(seen[1].exact["words"], [1.0, 2**-0.5, 2**-0.5])


def test_a_record_that_is_counted_still_has_norm_one():
    chunks = [(np.arange(7), np.array([0, 3, 3, 7]))]
    with releases(dict) as seen:
        union = noisy_union(chunks, ROUNDS, 300, count_records=True)
    assert union.n_records == pytest.approx(3.0)
    first, second = (release.exact for release in seen)
    of_one = first["records"][0] / 3.0
    for words in (first["words"][:3], first["words"][3:]):
        length = math.hypot(np.linalg.norm(words), of_one)
        assert length == pytest.approx(1.0), f"a record that is counted has norm {length}"
    assert second["records"][0] == 0.0, "a record is counted twice"


def test_the_number_of_records_has_noise_of_the_stated_size():
    counted = [vectorizer(count_records=True).fit(COMMON[:30]).n_records_ for _ in range(200)]
    std = 2.0 / math.sqrt(0.2) / 0.2
    assert np.mean(counted) == pytest.approx(30.0, abs=4.0 * std / math.sqrt(200))
    assert np.std(counted) == pytest.approx(std, rel=0.25)
    assert vectorizer().fit(COMMON).n_records_ is None


@pytest.mark.parametrize("longest", [1, 2, 5])
def test_all_rounds_cost_the_plan(longest):
    for plan in (PLAN, PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-6, sampling="full", n_steps=1)):
        rounds = rounds_of(replace(plan, clip_norm=1.0), 1e-6, 300, longest)
        assert [turn.length for turn in rounds] == [1, *range(1, longest + 1)]
        together = sum(1.0 / turn.plan.noise_multiplier**2 for turn in rounds) ** -0.5
        assert plan.noise_multiplier <= together <= plan.noise_multiplier * (1.0 + 1e-9), "the rounds cost more"


def test_the_thresholds_hide_what_one_record_adds():
    """Probability that a record with t words of its own shows any, by another formula: a sum over which is the first."""
    for delta, stds, most in ((1e-8, [90.0, 45.0], 1), (1e-6, [3.0, 2.0], 70), (0.05, [0.5, 0.3], 300)):
        shown = []
        for cut, std in zip(thresholds(delta, stds, most), stds, strict=True):
            tails = norm.sf(cut, loc=1.0 / np.sqrt(np.arange(1, most + 1)), scale=std)
            shown.append(max(sum(tail * (1.0 - tail) ** i for i in range(t)) for t, tail in enumerate(tails, start=1)))
        assert sum(shown) == pytest.approx(delta, rel=1e-6), f"a rare word is released with probability {sum(shown)}"


def test_rare_words_are_released_as_seldom_as_stated():
    delta, most, n_fits = 0.1, 64, 150
    for n_words in (1, most):
        document = [" ".join(f"w{i}" for i in range(n_words))]
        released = sum(
            bool(vectorizer(threshold_delta=delta, max_words=most).fit(document).vocabulary_) for _ in range(n_fits)
        )
        seen = binomtest(released, n_fits, delta, alternative="greater")
        assert seen.pvalue > 1e-5, f"{n_words} words are released in {released} of {n_fits} fits"


def test_noise_is_fresh_and_of_the_stated_size():
    document = [" ".join(f"w{i}" for i in range(200))]
    with releases() as seen:
        for _ in range(40):
            vectorizer(threshold_delta=1e-12).fit(document)
    for of_round, share in ((seen[::2], 0.2), (seen[1::2], 0.8)):
        drawn = np.concatenate([release.noise("words") for release in of_round])
        assert len(np.unique(drawn)) == len(drawn)
        assert np.std(drawn) == pytest.approx(2.0 / math.sqrt(share), rel=0.05), "the noise has another size"


@pytest.mark.parametrize("documents_of_a_person", [1, 5])
def test_an_attack_reaches_most_of_the_claim_and_never_exceeds_it(documents_of_a_person):
    """Each of many words is held by three documents and, with a fair coin, by one record more; noisy totals of both rounds are
    seen."""
    n_runs, n_words = 20, 1500
    rng, ratios, worlds = np.random.default_rng(0), [], []
    original, add_noise = _set_union.plans_of_rounds, PrivacyPlan.add_noise
    words = [f"w{i}" for i in range(n_words)]
    for _ in range(n_runs):
        coins = rng.random(n_words) < 0.5
        present = [word for word, coin in zip(words, coins, strict=True) if coin for _ in range(documents_of_a_person)]
        ids = list(range(3 * n_words)) + [f"x {word}" for word in present]
        noisy = []

        def watched(self, total, *arguments, noisy=noisy):
            noisy.append(add_noise(self, total, *arguments)["words"])
            return {"words": np.zeros(len(noisy[-1])), "records": np.zeros(1)}

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PrivacyPlan, "add_noise", watched)
            vectorizer().fit(words * 3 + present, groups=None if documents_of_a_person == 1 else ids)
        stds = [round_plan.noise_multiplier for round_plan in original(PLAN)]
        ratios.append(sum((seen - 3.0 - 0.5) / std**2 for seen, std in zip(noisy, stds, strict=True)))
        worlds.append(coins)
    bound = lower_bound(np.concatenate(ratios), np.concatenate(worlds), PLAN, 1.0 - 1e-6)
    assert not bound.exceeded, f"the claim is exceeded: {bound.bound} > {bound.claim}"
    assert bound.ratio > 0.6


def test_a_fit_is_charged_before_a_document_is_read(tmp_path):
    read = []

    class Watched(list):
        def __iter__(self):
            read.append(ledger.spent())
            raise RuntimeError("stop")

    ledger = PrivacyLedger(tmp_path / "budget", 5.0, 2e-5, "letters")
    left = ledger.remaining()
    with pytest.raises(RuntimeError, match="stop"):
        vectorizer().fit(Watched(COMMON), ledger=ledger)
    assert read[0] > 0.0, "a document is read before the charge"
    assert ledger.remaining() == left, "a fit that released nothing stays charged"
    fitted = vectorizer().fit(COMMON, ledger=ledger)
    assert ledger.remaining().delta_0 == pytest.approx(1e-6)
    assert fitted.privacy_.ledger["run"] == ledger.runs()[-1].run
    with ledger:
        vectorizer().fit(COMMON)
    with pytest.raises(PrivacyBudgetError):
        vectorizer().fit(COMMON, ledger=ledger)
    assert ledger.spent() > 0.0
    plain = PrivacyLedger(tmp_path / "plain", 5.0, 9e-6, "letters")
    with pytest.raises(PrivacyBudgetError, match="its δ is 1e-06"):
        vectorizer().fit(COMMON, ledger=plain)


def test_persons_are_one_record():
    one = totals_of(["the ship", "the sea", "ship ship"], ["a", "a", "b"])
    assert one == pytest.approx({"the": 3**-0.5, "ship": 1.0 + 3**-0.5, "sea": 3**-0.5})
    nobody = totals_of(["the ship", "the sea"], ["a", None])
    assert nobody == pytest.approx({"the": 2**-0.5, "ship": 2**-0.5})
    few = PrivacyPlan(noise_multiplier=2.0, sampling="full", n_steps=1, max_rows_per_group=1)
    assert "sea" not in totals_of(["the ship", "the sea"], ["a", "a"], plan=few)
    with pytest.raises(ValueError, match="pass the persons' ids"):
        vectorizer(few).fit(COMMON)
    of_writers = vectorizer().fit(COMMON, groups=pd.Series(range(300), name="writer"))
    assert of_writers.privacy_.unit == "all rows of one writer"


HOSTILE = [
    None, float("nan"), 3, b"the \xff sea", "\ud800 sea", "\x00", "", " ", "x" * 100_000, "sea " * 1000, ["the", "sea"],
    {"sea": 1}, object(), np.str_("sea"), pd.NA, pd.NaT, True, "ＳＥＡ ﷺ \u202e aes", "🌊" * 50,
]  # fmt: skip


def raises_for_some(text):
    if "lost" in text:
        raise RuntimeError(text)
    return text.split()


@pytest.mark.parametrize(
    "settings", [{}, {"strip_accents": "ascii"}, {"tokenizer": raises_for_some, "token_pattern": None}]
)
def test_no_document_raises_or_warns(settings):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = vectorizer(EXACT, 1e-9, **settings).fit(COMMON + HOSTILE)
        matrix = fitted.transform(COMMON[:3] + HOSTILE)
        for document in HOSTILE:
            vectorizer(**settings).fit([document])
    assert matrix.shape == (3 + len(HOSTILE), fitted.n_features_out)
    np.testing.assert_array_equal(matrix[:3].toarray(), fitted.transform(COMMON[:3]).toarray())


@pytest.mark.parametrize("ngram_range", [(1, 2), (2, 3)])
def test_without_noise_it_counts_as_scikit_learn_does(ngram_range):
    assert _documents.Analyser({"lowercase": True})("Zu\u0308rich") == ["z\u00fcrich"], (
        "an accent behind its letter parts a word"
    )
    settings = {"ngram_range": ngram_range, "stop_words": ["the"], "strip_accents": "unicode"}
    fitted = vectorizer(EXACT, 1e-9, **settings).fit(COMMON * 3)
    other = CountVectorizer(**settings).fit(COMMON)
    assert fitted.get_feature_names_out().tolist() == other.get_feature_names_out().tolist()
    np.testing.assert_array_equal(fitted.transform(COMMON).toarray(), other.transform(COMMON).toarray())


@pytest.mark.parametrize("is_of_persons", [False, True])
@pytest.mark.parametrize("settings", [{}, {"tokenizer": raises_for_some, "token_pattern": None}])
def test_documents_that_are_read_once_are_counted_as_if_read_twice(settings, is_of_persons):
    documents, fitted = COMMON + HOSTILE + COMMON, vectorizer(EXACT, 1e-9, **settings)
    groups = np.arange(len(documents)) // 2 if is_of_persons else None
    once, twice = fitted.fit_transform(documents, groups=groups), fitted.transform(documents)
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(once, name), getattr(twice, name), strict=True)
    assert once.shape == twice.shape
    assert once.nnz > 600


@pytest.mark.parametrize(
    "container",
    [list, tuple, np.array, lambda texts: np.array(texts, object), pd.Series, lambda texts: pd.Series(texts, dtype="category"),
     lambda texts: pd.Series(texts, dtype="string"), lambda texts: pd.Series(texts, dtype="string[pyarrow]")],
)  # fmt: skip
def test_every_container_gives_the_same(container):
    fitted = vectorizer(EXACT, 1e-9).fit(container(COMMON))
    assert fitted.vocabulary_ == vectorizer(EXACT, 1e-9).fit(COMMON).vocabulary_
    assert isinstance(fitted.transform(container(COMMON)), sp.csr_array)


def test_text_in_arrow_need_not_be_valid():
    validity, offsets, _ = pa.array(["sea ship", "the sea"]).buffers()
    bad = pa.Array.from_buffers(pa.string(), 2, [validity, offsets, pa.py_buffer(b"sea \xff\xfe\xfe\xfethe sea")])
    assert "sea" in totals_of(bad)
    dictionary = pa.array(COMMON).dictionary_encode()
    assert vectorizer(EXACT, 1e-9).fit(dictionary).vocabulary_ == vectorizer(EXACT, 1e-9).fit(COMMON).vocabulary_
    with pytest.raises(TypeError, match="Arrow's type int64"):
        vectorizer().fit(pa.array([1, 2]))


@pytest.mark.parametrize(
    ("settings", "documents", "says"),
    [
        ({"plan": None}, COMMON, "`privacy` must be a PrivacyBudget"),
        ({"plan": PrivacyPlan.non_private()}, COMMON, "no guarantee"),
        ({"plan": PrivacyPlan(noise_multiplier=2.0, sampling_rate=0.5, n_steps=1)}, COMMON, "one release"),
        ({"threshold_delta": None}, COMMON, "threshold_delta"),
        ({"threshold_delta": 0.5}, COMMON, "threshold_delta"),
        ({"max_words": 0}, COMMON, "max_words"),
        ({"max_features": 0.5}, COMMON, "max_features"),
        ({"ngram_range": (2, 1)}, COMMON, "ngram_range"),
        ({"stop_words": "klingon"}, COMMON, "stop_words"),
        ({}, "the sea", r"write \[text\]"),
        ({}, np.ones(3), "must be text"),
        ({}, pd.DataFrame({"text": COMMON}), "2 dimensions"),
        ({}, iter(COMMON), "list of strings"),
        ({}, {"a": 1}, "list of strings"),
    ],
)
def test_errors_come_from_public_facts(settings, documents, says):
    with pytest.raises((TypeError, ValueError), match=says):
        vectorizer(**settings).fit(documents)


def test_it_is_an_estimator():
    empty = vectorizer().fit(["a rare word"])  # noise alone
    assert empty.vocabulary_ == {}
    assert empty.transform(COMMON).shape == (300, 0)
    fitted = vectorizer().fit(COMMON)
    assert clone(fitted).get_params()["threshold_delta"] == 1e-6
    with pytest.raises(NotFittedError):
        clone(fitted).transform(COMMON)
    with pytest.raises(TypeError):
        fitted.fit(np.ones(3))
    assert fitted.transform(COMMON).shape[0] == len(COMMON)  # what it has paid for is not lost


def test_the_report_states_both_rounds():
    plan = PrivacyPlan.from_epsilon(epsilon=0.5, delta=9e-7, sampling="full", n_steps=1)
    report = vectorizer(plan, 1e-7, stop_words="english").fit(COMMON).privacy_
    assert report.epsilon() == pytest.approx(0.5, abs=1e-4)
    assert report.to_dict()["delta"] == pytest.approx(1e-6)
    text = str(report)
    assert "δ = 1e-06" in text
    assert "at most 300 words" in text
    for round_plan in plans_of_rounds(report.plan):
        assert f"{round_plan.noise_std():.4g}" in text
    assert "what a word is (stop_words)" in text


class Node(str):
    """A string that knows where it stands, as those of an HTML parser do."""

    document = ""

    def __hash__(self):
        if "Amalie" in self.document:
            raise RuntimeError(self.document)
        return str.__hash__(self)


def nodes(text):
    chain = []
    for word in text.split():
        chain.append(Node(word))
        chain[-1].document = text
    return chain


def test_words_are_plain_strings_that_hold_no_document():
    fitted = vectorizer(EXACT, 1e-9, analyzer=nodes).fit(["Amalie owes a ship", *COMMON])
    assert {type(word) for word in fitted.vocabulary_} == {str}
    assert b"owes" not in pickle.dumps(fitted.vocabulary_)


def exits_for_some(text):
    if "lost" in text:
        warnings.warn(text, stacklevel=2)
        raise SystemExit(text)
    return text.split()


def test_functions_that_warn_or_exit_tell_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = vectorizer(EXACT, 1e-9, tokenizer=exits_for_some, token_pattern=None).fit(COMMON)
        assert "lost" not in fitted.vocabulary_
        assert fitted.transform(["lost at sea"]).sum() == 0


def test_arrow_is_read_after_the_charge_and_its_defects_are_no_text(tmp_path):
    broken = pa.DictionaryArray.from_arrays(pa.array([0, 9, None] * 50, pa.int32()), pa.array(["ship sea"]), safe=False)
    assert vectorizer(EXACT, 1e-9).fit(broken).transform(broken)[1].sum() == 0
    ledger, read = PrivacyLedger(tmp_path / "budget", 5.0, 2e-5, "letters"), []
    original = _documents.bytes_of_arrow
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_documents, "bytes_of_arrow", lambda values: read.append(ledger.spent()) or original(values))
        vectorizer().fit(pa.array(COMMON), ledger=ledger)
    assert read[0] > 0.0


def test_an_interrupt_after_the_noise_gives_nothing_back(tmp_path):
    ledger, add_noise = PrivacyLedger(tmp_path / "budget", 5.0, 2e-5, "letters"), PrivacyPlan.add_noise

    def interrupted(self, *arguments):
        add_noise(self, *arguments)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PrivacyPlan, "add_noise", interrupted)
        with pytest.raises(KeyboardInterrupt):
            vectorizer().fit(COMMON, ledger=ledger)
    assert ledger.spent() > 0.0


def test_the_largest_totals_are_kept_and_known_words_are_of_them():
    fitted = vectorizer(EXACT, 1e-9, max_features=2).fit(["sea ship"] * 9 + ["sea"] * 9 + ["ship storm"] * 2)
    assert list(fitted.vocabulary_) == ["sea", "ship"]
    documents = [" ".join(f"w{i}" for i in np.random.default_rng(j).choice(40, 10, replace=False)) for j in range(2000)]
    few = vectorizer(EXACT, 1e-9, max_features=4).fit(documents)
    assert 0.5 < few.known_words(2000, 10) < 2.0  # a quarter of ten words
    assert vectorizer(EXACT, 1e-9).fit(documents).known_words(2000, 10) == pytest.approx(10.0, rel=0.01)

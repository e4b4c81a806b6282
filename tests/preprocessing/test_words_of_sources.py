"""A vocabulary of texts that are read a partition at a time: what a list of the same texts gives, within the same bounds."""

import math
import os
import sys
import tempfile
import time
import warnings
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from scipy.stats import binomtest, norm
from sklearn.preprocessing import Normalizer

from tests.memory import NOISE, peak_of
from tests.preprocessing import test_private_words as in_memory
from tests.preprocessing.test_private_words import COMMON, EXACT, HOSTILE, PLAN, RECORDS, distance, vectorizer
from tests.releases import releases
from vips import (
    BayesianLogisticRegression,
    LatentDirichletAllocation,
    PrivacyBudget,
    PrivacyLedger,
    PrivacyPlan,
    PrivateTopics,
    SourceError,
)
from vips.data import (
    DataSource,
    InMemoryData,
    InMemoryTexts,
    ParquetTexts,
    Partition,
    TextFiles,
    TextPartitions,
    TextSource,
    regroup,
    regrouped,
)
from vips.preprocessing import (
    PrivateCountVectorizer,
    TableEncoder,
    _private_words,
    _sorted_words,
    make_private_pipeline,
)
from vips.preprocessing._documents import CountedTexts, _read, _write
from vips.preprocessing._sorted_words import SortedRuns, WordTask, share_of_words

RNG = np.random.default_rng(0)
WORDS = [f"w{i}" for i in range(60)]
TEXTS = [" ".join(RNG.choice(WORDS, 12, p=np.arange(60, 0, -1) / 1830)) for _ in range(240)]


def same_words(one, other):
    """Whether both learnt the same words. Noise orders those that equally many documents hold."""
    return set(one.vocabulary_) == set(other.vocabulary_)


def given(documents):
    return documents


def parquet(folder, documents, size=50, **columns):
    pq.write_table(pa.table({"text": documents, **columns}), folder / "texts.parquet", row_group_size=size)
    return ParquetTexts(folder / "texts.parquet", "text", **dict.fromkeys(({"target"} if columns else ()), "y"))


def files(folder, documents, size=50):
    folder = folder / "files"
    folder.mkdir()
    for i, document in enumerate(documents):
        (folder / f"{i:05d}.txt").write_text(document, encoding="utf-8")
    return TextFiles(folder, partition_size=size)


def functions(folder, documents, size=50):
    return TextPartitions(partial(given, documents[first : first + size]) for first in range(0, len(documents), size))


def ranges(folder, documents, size=50):
    return InMemoryTexts(documents, partition_size=size)


@pytest.mark.parametrize("made", [parquet, files, functions, ranges])
def test_every_source_gives_what_the_list_gives(made, tmp_path):
    source, settings = made(tmp_path, TEXTS), {"count_records": True, "max_features": 40}
    assert source.n_partitions == 5
    assert sum(source.sizes) == 240
    one, other = (vectorizer(EXACT, 1e-9, **settings).fit(texts) for texts in (TEXTS, source))
    assert one.vocabulary_ == other.vocabulary_
    assert len(one.vocabulary_) == 40
    assert other.round_totals_ == pytest.approx(one.round_totals_)
    assert other.n_records_ == pytest.approx(240.0)
    counts = [partition.open().X for partition in other.transform(source).partitions]
    np.testing.assert_array_equal(sp.vstack(counts).toarray(), one.transform(TEXTS).toarray())


@contextmanager
def watched_totals(known=()):
    """While active, a fit to a source makes a round of each length after ones that have released ``known``; yields totals."""
    by_word = {}

    def watch(turn, blocks, count, of_count, release):
        for words, totals in blocks:
            for word, total in zip(words, totals, strict=True):
                assert word not in by_word, f"{word!r} has two totals"
                by_word[word] = total
        return [], np.zeros(0), count

    task = WordTask.share

    def share(self, partition, coins):
        return task(replace(self, known=(*known, *self.known)), partition, coins)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_sorted_words, "released", watch)
        patch.setattr(WordTask, "share", share)
        rounds = _private_words.rounds_of
        patch.setattr(_private_words, "rounds_of", lambda *arguments: rounds(*arguments)[1:])
        yield by_word


def totals_of(documents, groups=None, plan=PLAN, known=(), size=50, **settings):
    with watched_totals(known) as by_word:
        vectorizer(plan, **settings).fit(InMemoryTexts(documents, size), groups=groups)
    return by_word


def test_a_record_moves_the_totals_by_at_most_one_clip():
    ids = [f"p{i}" for i in range(len(COMMON))]
    for known in ((), ("the", "sea")):
        before = totals_of(COMMON, ids, known=known)
        for name, documents in RECORDS.items():
            after = totals_of(COMMON + documents, ids + ["new"] * len(documents), known=known)
            moved = distance(before, after)
            assert moved <= 1.0 + 1e-9, f"{name}: a record moves the totals by {moved}"
            assert not set(known) & set(after), "a known word has a share"


@pytest.mark.parametrize("known", [("the", "sea"), ("the", "sea", "the sea")])
def test_a_record_moves_the_totals_of_phrases_by_at_most_one_clip(known):
    in_memory.check_phrases(totals_of, known)


@pytest.mark.parametrize("size", [1, 3, 50, 1000])
def test_totals_are_those_of_the_list_however_it_is_divided(size):
    exact = in_memory.totals_of(TEXTS)
    assert totals_of(TEXTS, size=size) == pytest.approx(exact)
    ids = [None if i % 11 == 0 else i % 7 for i in range(240)]
    few = PrivacyPlan(noise_multiplier=2.0, sampling="full", n_steps=1, max_rows_per_group=5)
    for plan in (PLAN, few):
        assert totals_of(TEXTS, ids, plan, size=size) == pytest.approx(in_memory.totals_of(TEXTS, ids, plan))


def test_of_many_words_some_are_drawn():
    totals = totals_of([" ".join(f"w{i}" for i in range(50))] * 3, max_words=10, size=2)
    assert sum(totals.values()) == pytest.approx(3 * 10**0.5)
    assert len(totals) > 10  # each record draws its own


def test_a_share_depends_on_its_partition_alone():
    task = WordTask(vectorizer()._settings(), 1, ("the",), 3, 0.2, PLAN)
    one, other = InMemoryTexts([*COMMON[:8], "zebra"], 4), InMemoryTexts(COMMON[:4] + COMMON[40:47], 4)
    shares = [
        source.partition(0).open() and task.share(source.partition(0), (5, 0)) for source in (one, other, one, other)
    ]
    task.share(one.partition(1), (5, 1))
    for share in (*shares[1:], task.share(other.partition(0), (5, 0))):
        for name, value in shares[0].items():
            np.testing.assert_array_equal(value, share[name], err_msg=f"another share: {name}")


STRANGE = ["", "a\nb", "a\0", "\0", "é", "🌊", "\ud800", "ﷺ", "z" * 3000, "w1", "w10", "w2"]


def test_sorted_runs_add_every_word_once():
    n_shares = 300
    rng, exact, names = np.random.default_rng(0), Counter(), STRANGE + WORDS
    with pytest.MonkeyPatch.context() as patch, SortedRuns() as runs:
        patch.setattr(_sorted_words, "_BLOCK_BYTES", 60)
        for _ in range(n_shares):
            share = {names[i]: float(rng.integers(1, 9)) for i in rng.choice(len(names), rng.integers(0, 30), False)}
            runs.push(share_of_words(share, 2.0))
            exact.update(share)
        assert max(map(len, runs._levels)) < 16
        assert len(runs._levels) == 3
        added = [(word, total) for words, totals in runs.blocks() for word, total in zip(words, totals, strict=True)]
    assert runs.count == 2.0 * n_shares
    assert [word for word, _ in added] == sorted(exact), "a word is missing, is there twice, or is out of order"
    assert dict(added) == exact, "a total is not the sum of its shares"


def test_the_order_of_additions_depends_on_the_number_of_shares_alone():
    rng = np.random.default_rng(1)
    shares = [{"a": float(total), f"b{i % 7}": 0.1} for i, total in enumerate(rng.normal(size=100))]
    other = [share | {f"other {i}": 1.0, "zz": 3.0} for i, share in enumerate(shares)]
    sums = []
    for group in (shares, other):
        with SortedRuns() as runs:
            for share in group:
                runs.push(share_of_words(share, 1.0))
            sums.append({word: total for block in runs.blocks() for word, total in zip(*block, strict=True)})
    assert all(sums[1][word] == total for word, total in sums[0].items())  # to the last bit


def test_memory_holds_one_block_of_each_run():
    """A merge of many words holds few: blocks that are alive, in bytes, beside what is merged."""
    with pytest.MonkeyPatch.context() as patch, SortedRuns() as runs:
        patch.setattr(_sorted_words, "_BLOCK_BYTES", 2**14)
        for i in range(8):
            runs.push(share_of_words({f"{i} {j}": 1.0 for j in range(6_000)}, 1.0))
        n_words = []
        largest = peak_of(lambda: n_words.append(sum(len(words) for words, _ in runs.blocks())), only_once=True)
    assert n_words == [48_000]
    assert largest < 8 * 8 * 2**14 + NOISE, f"a merge takes {largest / 2**20:.0f} MiB"


def test_every_block_has_fresh_noise():
    with releases() as seen, pytest.MonkeyPatch.context() as patch:
        patch.setattr(_sorted_words, "_BLOCK_BYTES", 500)
        for _ in range(3):
            vectorizer(threshold_delta=1e-12).fit(InMemoryTexts([" ".join(f"w{i}" for i in range(300))] * 90, 10))
    for is_second, share in ((False, 0.2), (True, 0.8)):
        noise = [release.noise("words") for release in seen if (release.plan.noise_multiplier < 3.0) == is_second]
        assert len(noise) > 20  # several blocks
        drawn = np.concatenate(noise)
        assert len(drawn) == 900
        assert len(np.unique(drawn)) == len(drawn), "two words have one draw"
        assert np.std(drawn) == pytest.approx(2.0 / math.sqrt(share), rel=0.2), "the noise has another size"


def test_rare_words_are_released_as_seldom_as_stated():
    delta, most, n_fits = 0.1, 64, 200
    document = InMemoryTexts([" ".join(f"w{i}" for i in range(most))])
    vocabularies = [vectorizer(threshold_delta=delta, max_words=most).fit(document).vocabulary_ for _ in range(n_fits)]
    seen = binomtest(sum(map(bool, vocabularies)), n_fits, delta, alternative="greater")
    assert seen.pvalue > 1e-7, f"they are released in {sum(map(bool, vocabularies))} of {n_fits} fits"


def test_the_number_of_records_is_noisy():
    std = 2.0 / math.sqrt(0.2) / 0.2
    counted = [vectorizer(count_records=True).fit(InMemoryTexts(COMMON, 100)).n_records_ for _ in range(20)]
    assert np.mean(counted) == pytest.approx(300.0, abs=norm.isf(1e-8) * std / math.sqrt(20))
    assert len(set(counted)) == 20
    assert vectorizer(count_records=True).fit(TextPartitions([])).n_records_ is not None  # nothing is ordinary input


@pytest.mark.parametrize("made", [functions, ranges])
def test_no_document_raises_or_warns(made, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = vectorizer(EXACT, 1e-9).fit(made(tmp_path, COMMON + HOSTILE, 7))
        counted = fitted.transform(made(tmp_path, HOSTILE, 7))
        assert sum(partition.open().n_records for partition in counted.partitions) == len(HOSTILE)
    other = vectorizer(EXACT, 1e-9).fit(COMMON + HOSTILE)
    of_many = [{word for word in model.vocabulary_ if "xx" not in word} for model in (fitted, other)]
    assert of_many[0] == of_many[1]


def test_text_in_parquet_may_be_missing_or_a_dictionary(tmp_path):
    texts = pa.array([*COMMON, None]).dictionary_encode()
    pq.write_table(pa.table({"text": texts, "n": np.arange(301)}), tmp_path / "a.parquet")
    source = ParquetTexts(tmp_path, "text")
    assert same_words(vectorizer(EXACT, 1e-9).fit(source), vectorizer(EXACT, 1e-9).fit(COMMON))
    for column, says in (("n", "not strings"), ("other", "has no column")):
        with pytest.raises(SourceError, match=says):
            ParquetTexts(tmp_path, column)
    with pytest.raises(SourceError, match="labels are"):
        ParquetTexts(tmp_path, "text", target="text")


def test_a_dictionary_of_texts_is_not_written_out(tmp_path):
    """Arrow raises above 2 GB, and how long the repeated documents are is private."""
    texts = pa.DictionaryArray.from_arrays(
        pa.array([0, 0, None, 1, 0], pa.int32()), pa.array(["again " * 1000, "once"])
    )
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet")
    documents = ParquetTexts(tmp_path, "text").partition(0).open().X
    assert documents.tolist() == [b"again " * 1000, b"again " * 1000, None, b"once", b"again " * 1000]
    assert documents[0] is documents[1]
    assert documents[0] is documents[4]


# -- temporary files, and the ledger --------------------------------------------------------------------------------------


class Stopping(TextSource):
    """The second partition raises."""

    def __init__(self, error):
        self._error, self.n_opened = error, 0

    n_partitions = 2

    def partition(self, i):
        return StoppingPartition(self, i)


class StoppingPartition(Partition):
    name = "a partition"

    def __init__(self, source, i):
        self.source, self.i = source, i

    def open(self):
        if self.i:
            raise self.source._error
        return InMemoryTexts(COMMON).partition(0).open()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SourceError("torn")])
def test_an_interrupt_leaves_no_file_and_gives_the_charge_back(error, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    ledger = PrivacyLedger(tmp_path / "budget", 5.0, 2e-5, "letters")
    with pytest.raises(type(error)):
        vectorizer().fit(Stopping(error), ledger=ledger)
    assert ledger.spent() == 0.0
    assert not list((tmp_path / "temporary").iterdir())


def stops_while_merging(folder, merging):
    def stop(*_):
        merging.set()
        time.sleep(100)

    tempfile.tempdir, _sorted_words.released = str(folder), stop
    vectorizer().fit(InMemoryTexts(["Amalie owes me ten crowns"] * 90, 3))


@pytest.mark.skipif(os.name != "posix", reason="files without names")
def test_a_killed_process_leaves_no_word_behind(tmp_path, forkserver):
    merging = forkserver.Event()
    process = forkserver.Process(target=stops_while_merging, args=(tmp_path, merging))
    process.start()
    assert merging.wait(120)
    opened = [os.readlink(link) for link in Path(f"/proc/{process.pid}/fd").glob("*")]  # none, but on Linux
    process.kill()
    process.join()
    assert not list(tmp_path.iterdir())
    assert sys.platform != "linux" or any(str(tmp_path) in path for path in opened)  # there was something to leave


def test_a_fit_is_charged_before_a_document_is_read(tmp_path):
    ledger, read = PrivacyLedger(tmp_path / "budget", 5.0, 2e-5, "letters"), []

    def watched(documents):
        read.append(ledger.spent())
        return documents if len(read) > 1 else 1 / 0

    with pytest.raises(SourceError, match="ZeroDivisionError"):
        vectorizer().fit(TextPartitions([partial(watched, COMMON)] * 2), ledger=ledger)
    assert read[0] > 0.0, "a document is read before the charge"
    assert ledger.spent() == 0.0
    fitted = vectorizer().fit(TextPartitions([partial(watched, COMMON)] * 2), ledger=ledger)
    assert min(read) > 0.0, "a document is read before the charge"
    assert len(read) == 1 + 4
    assert fitted.privacy_.ledger["run"] == ledger.runs()[-1].run


def test_files_that_change_stop_the_fit(tmp_path):
    source = files(tmp_path, COMMON)
    (tmp_path / "files" / "00003.txt").write_text("another text")
    with pytest.raises(SourceError, match="part 0: a file has changed"):
        vectorizer().fit(source)
    for folder, says in ((tmp_path / "no", "not a folder"), (tmp_path, "holds no file")):
        with pytest.raises(SourceError, match=says):
            TextFiles(folder)


def test_errors_of_functions_quote_no_document():
    def read():
        raise ValueError("Amalie")

    with pytest.raises(SourceError, match="its function raised ValueError") as caught:
        vectorizer().fit(TextPartitions([read]))
    assert "Amalie" not in "".join(map(str, (caught.value, caught.value.__context__, caught.value.__cause__)))


# -- persons --------------------------------------------------------------------------------------------------------------


def test_persons_are_one_record_and_lie_in_one_partition():
    ids = ["a", "b", "a", None, "b", "c"]
    texts = ["the ship", "the sea", "ship ship", "storm", "the", "sea"]
    for size in (1, 2, 9):
        assert totals_of(texts, ids, size=size) == pytest.approx(in_memory.totals_of(texts, ids))
    fitted = vectorizer().fit(InMemoryTexts(COMMON), groups=np.arange(300) // 3)
    assert fitted.privacy_.unit == "all rows of one group"


@pytest.mark.parametrize("made", [functions, files, parquet])
def test_a_source_that_cannot_promise_whole_persons_refuses_them(made, tmp_path):
    source = made(tmp_path, TEXTS)
    for estimator in (vectorizer(), PrivateTopics(2, privacy=PrivacyBudget(1.0, 1e-6))):
        with pytest.raises(TypeError, match=r"vips\.data\.regroup"):
            estimator.fit(source, groups=np.arange(240) // 2)
    with pytest.raises(ValueError, match="pass the persons' ids"):
        vectorizer(PrivacyPlan(noise_multiplier=2.0, sampling="full", n_steps=1, max_rows_per_group=1)).fit(source)


# -- models and pipelines -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("made", [parquet, files])
def test_topics_of_a_source_are_those_of_the_list(made, tmp_path):
    words = vectorizer(EXACT, 1e-9).fit(TEXTS)
    plan = PrivacyPlan(noise_multiplier=1.0, sampling="full", n_steps=3, reproducible_noise=True)
    model = LatentDirichletAllocation(3, vocabulary=words.vocabulary, privacy=plan, random_state=0, dtype=np.float64)
    source = words.transform(made(tmp_path, TEXTS))
    components = [model.fit(documents).components_.copy() for documents in (words.transform(TEXTS), source)]
    np.testing.assert_allclose(components[1], components[0], rtol=1e-9)
    assert source.partitions is source.partitions


def test_persons_of_a_source_are_one_record_of_the_model():
    ids = np.arange(240) // 4
    words = vectorizer(EXACT, 1e-9).fit(InMemoryTexts(TEXTS, 9), groups=ids)
    plan = PrivacyPlan(noise_multiplier=1.0, sampling="full", n_steps=2, clip_norm=3.0, reproducible_noise=True)
    model = LatentDirichletAllocation(2, vocabulary=words.vocabulary, privacy=plan, random_state=0, dtype=np.float64)
    one = model.fit(words.transform(TEXTS), groups=ids).components_.copy()
    grouped = InMemoryTexts(TEXTS, 9).grouped(ids)
    np.testing.assert_allclose(model.fit(words.transform(grouped)).components_, one, rtol=1e-9)
    assert model.privacy_.unit == "all rows of one group"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Noise hides how large:vips.PrivacyWarning")
def test_a_pipeline_is_fitted_to_a_source(tmp_path):
    labels = np.array(["w0 " in f"{text} " for text in TEXTS], float)
    source = parquet(tmp_path, TEXTS * 5, y=np.tile(labels, 5))
    ledger = PrivacyLedger(tmp_path / "budget", 20.0, 1e-4, "letters")
    pipeline = make_private_pipeline(
        PrivateCountVectorizer(), BayesianLogisticRegression(max_norm=6.0), privacy=PrivacyBudget(16.0, 1e-6)
    ).fit(source, ledger=ledger)
    assert pipeline.score(TEXTS, labels) > 0.8
    assert len(ledger.runs()) == 1
    assert 15.9 < pipeline.privacy_.epsilon() <= 16.0
    topics = PrivateTopics(privacy=PrivacyBudget(4.0, 1e-6), n_steps=2, stop_words=None).fit(source)
    assert len(topics.vocabulary_) > 10
    assert topics.transform(TEXTS[:2]).shape[0] == 2


def test_topics_of_a_source_are_computed_a_partition_at_a_time():
    source = InMemoryTexts(COMMON * 4, 500)
    topics = PrivateTopics(2, privacy=PrivacyBudget(8.0, 1e-6), n_steps=2).fit(source)
    with pytest.raises(TypeError, match="Take a partition at a time") as caught:
        topics.transform(source)
    suggestion = str(caught.value).partition("time: ")[2].removesuffix(", say.")
    words, model = topics[0], topics[-1]
    shares = eval(suggestion, {"model": model, "source": words.transform(source)})
    np.testing.assert_allclose(np.vstack(shares), topics.transform(COMMON * 4))


def test_pipelines_of_persons_state_them_and_go_on_from_their_checkpoint(tmp_path):
    source = InMemoryTexts(COMMON * 4, 500)
    given = {"groups": np.arange(1200) % 400, "checkpoint": tmp_path / "fit.vips"}
    fits = [PrivateTopics(2, privacy=PrivacyBudget(8.0, 1e-6), n_steps=2).fit(source, **given) for _ in range(2)]
    np.testing.assert_array_equal(fits[0].components_, fits[1].components_)
    assert fits[0].privacy_.unit == fits[1].privacy_.unit == "all rows of one group"


def test_what_cannot_work_is_refused_before_a_charge(tmp_path):
    ledger = PrivacyLedger(tmp_path / "budget", 20.0, 1e-4, "letters")
    source, budget = InMemoryTexts(TEXTS, 50), {"privacy": PrivacyBudget(4.0, 1e-6)}
    topics, regression = LatentDirichletAllocation(2), BayesianLogisticRegression(max_norm=6.0)
    words = PrivateCountVectorizer()
    for steps, data, more, error, says in (
        ((words, Normalizer(), regression), source, {}, TypeError, "two steps"),
        ((words, regression), source, {}, ValueError, "requires y"),
        ((words, regression), source, {"y": np.zeros(240)}, TypeError, "holds its own labels"),
        ((words, topics), source, {"executor": "cluster"}, ValueError, "`executor` must be"),
        ((TableEncoder(), topics), source, {}, TypeError, "table in memory"),
        ((words, topics), InMemoryData(np.ones((3, 2))), {}, TypeError, "holds numbers"),
    ):
        with pytest.raises(error, match=says):
            make_private_pipeline(*steps, **budget).fit(data, **more, ledger=ledger)
    plan = PrivacyPlan(noise_multiplier=1.0, sampling="full", n_steps=3)
    with pytest.raises(TypeError, match=r"holds texts.*make_private_pipeline"):
        LatentDirichletAllocation(2, vocabulary=5, privacy=plan).fit(source, ledger=ledger)
    with pytest.raises(ValueError, match="`executor` must be"):
        vectorizer().fit(source, executor="cluster", ledger=ledger)
    with pytest.raises(TypeError, match="takes functions"):
        TextPartitions([COMMON])
    for no_list in ("text", iter(COMMON), {"a": 1}, np.ones((2, 2))):
        with pytest.raises(TypeError, match="takes a list"):
            InMemoryTexts(no_list)
    assert not ledger.runs()


def test_containers_of_texts():
    fitted = vectorizer(EXACT, 1e-9).fit(TEXTS)
    for container in (np.array, lambda texts: pd.Series(texts, index=range(9, 249)), tuple):
        for texts in (container(TEXTS), InMemoryTexts(container(TEXTS), 7)):
            assert same_words(fitted, vectorizer(EXACT, 1e-9).fit(texts)), type(texts)


@pytest.mark.slow
def test_a_list_with_an_executor_is_a_source():
    for container in (np.array, pd.Series, tuple, list):
        one, other = (vectorizer(EXACT, 1e-9).fit(container(TEXTS), executor=how) for how in (None, "processes"))
        assert same_words(one, other), container
    assert isinstance(other.transform(InMemoryTexts(TEXTS)), DataSource)


def test_warnings_are_as_before_after_threads():
    def warns(text):
        if "w" in text:
            warnings.warn(text, stacklevel=2)
        return text.split()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = list(warnings.filters)
        settings = {"tokenizer": warns, "token_pattern": None}
        vectorizer(EXACT, 1e-9, **settings).fit(InMemoryTexts(TEXTS, 10))
        assert list(warnings.filters) == before


@pytest.mark.repeated("parquet", "ranges")
@pytest.mark.parametrize("made", [parquet, files, ranges])
def test_texts_are_regrouped_by_person(made, tmp_path):
    ids = [None if i % 11 == 0 else f"writer {i % 13}" for i in range(240)]
    texts = ["" if i % 17 == 0 else text + " é\n" * (i % 3) for i, text in enumerate(TEXTS)]
    source = regroup(made(tmp_path, texts), by=pd.Series(ids, name="writer"), to=tmp_path / "by_writer", n_partitions=4)
    assert isinstance(source, TextSource)
    assert sum(source.sizes) == 13
    exact = in_memory.totals_of(texts, ids)
    for records in (source, regrouped(tmp_path / "by_writer")):
        with watched_totals() as by_word:
            fitted = vectorizer().fit(records)
        assert by_word == pytest.approx(exact)
        assert fitted.privacy_.unit == "all rows of one writer"
    few = PrivacyPlan(noise_multiplier=2.0, sampling="full", n_steps=1, max_rows_per_group=2)
    with watched_totals() as by_word:
        vectorizer(few).fit(source)
    assert by_word == pytest.approx(in_memory.totals_of(texts, ids, few))
    words = vectorizer(EXACT, 1e-9).fit(source)
    plan = PrivacyPlan(noise_multiplier=1.0, sampling="full", n_steps=2, clip_norm=3.0, reproducible_noise=True)
    model = LatentDirichletAllocation(2, vocabulary=words.vocabulary, privacy=plan, random_state=0, dtype=np.float64)
    one = model.fit(words.transform(texts), groups=ids).components_.copy()
    np.testing.assert_allclose(model.fit(words.transform(source)).components_, one, rtol=1e-9)
    with pytest.raises(ValueError, match="holds persons already"):
        vectorizer().fit(source, groups=ids)


def folders_of_counts(folder):
    return sorted(folder.glob("counts-*"))


def test_regrouped_texts_are_counted_once(tmp_path):
    source = regroup(InMemoryTexts(TEXTS, 50), by=np.arange(240) % 9, to=tmp_path / "by_writer", n_partitions=3)
    seen = []

    def split(text):
        seen.append(text in TEXTS)
        return text.split()

    words = vectorizer(EXACT, 1e-9, tokenizer=split, token_pattern=None).fit(source)
    assert not folders_of_counts(tmp_path / "by_writer")
    plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=0.5, n_steps=4, reproducible_noise=True)
    topics = {}
    for folder in (source.folder, None):
        source.folder = folder
        seen.clear()
        counts = words.transform(source)
        model = LatentDirichletAllocation(2, vocabulary=words.vocabulary, privacy=plan, random_state=0)
        topics[folder] = model.fit(counts).components_.copy()
        assert sum(seen) == (240 if folder else 4 * 240)
    np.testing.assert_array_equal(*topics.values())


def test_counts_belong_to_one_vocabulary_and_one_tokeniser(tmp_path):
    source = regroup(InMemoryTexts(["a b", "b c c"], 50), by=[1, 1], to=tmp_path / "by_writer")
    counted = [
        CountedTexts(source, {"token_pattern": pattern}, {words[0]: 0, words[1]: 1})
        for pattern, words in ((".", "ab"), (".", "bc"), ("b", "ab"))
    ]
    for _ in range(2):  # counted, and kept
        tables = [counts.partition(0).open().X.toarray().tolist() for counts in counted]
        assert tables == [[[1, 1], [0, 1]], [[1, 0], [1, 2]], [[0, 1], [0, 1]]], "counts of another model"
    assert len(folders_of_counts(tmp_path / "by_writer")) == 3
    del counted, tables
    assert not folders_of_counts(tmp_path / "by_writer")


def test_kept_counts_are_for_their_owner_only(tmp_path):
    before = os.umask(0)
    try:
        source = regroup(InMemoryTexts(TEXTS, 50), by=np.arange(240) % 9, to=tmp_path / "by_writer")
        counts = CountedTexts(source, {}, {"w1": 0})
        (kept,) = folders_of_counts(tmp_path / "by_writer")  # before a text is read
        for partition in counts.partitions:
            partition.open()
        files = list(kept.iterdir())
    finally:
        os.umask(before)
    assert len(files) == source.n_partitions
    assert {path.stat().st_mode & 0o777 for path in (kept, tmp_path / "by_writer")} == {0o700}, "a folder is open"
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}, "a file is open"


def test_counts_that_cannot_be_kept_are_counted_again(tmp_path, monkeypatch):
    source = regroup(InMemoryTexts(["a b", "b c c"], 50), by=[1, 1], to=tmp_path / "by_writer")
    counted = [CountedTexts(source, {"token_pattern": "."}, {"b": 0, "c": 1}) for _ in range(3)]
    folders = folders_of_counts(tmp_path / "by_writer")
    folders[0].rmdir()
    (folders[1] / "00000.npy").write_bytes(b"torn")
    monkeypatch.setattr("vips.preprocessing._documents.tempfile.mkdtemp", no_space)
    counted.append(CountedTexts(source, {"token_pattern": "."}, {"b": 0, "c": 1}))
    for counts in [*counted, *counted]:
        assert counts.partition(0).open().X.toarray().tolist() == [[1, 0], [1, 2]]


def no_space(*arguments, **settings):
    raise OSError("no space left")


def test_a_column_of_parquet_names_the_persons_and_labels_go_along(tmp_path):
    columns = {"text": [*TEXTS, None], "y": np.arange(241.0), "writer": [i % 13 for i in range(241)]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", row_group_size=50)
    source = regroup(ParquetTexts(tmp_path, "text", "y"), by="writer", to=tmp_path / "by_writer")
    texts_by_label = {}
    for partition in source.partitions:
        opened = partition.open()
        texts_by_label |= dict(zip(opened.y.tolist(), opened.X, strict=True))
    assert texts_by_label == {float(i): (text or "").encode() for i, text in enumerate(columns["text"])}
    nothing = regroup(TextPartitions([]), by=[], to=tmp_path / "nothing")
    assert vectorizer().fit(nothing).vocabulary_ == {}


def test_changed_files_of_persons_are_refused(tmp_path):
    source = regroup(InMemoryTexts(TEXTS, 50), by=np.arange(240) % 9, to=tmp_path / "by_writer")
    paths = [partition.files["indptr"].path for partition in source.partitions]
    path = max(paths, key=lambda file: len(np.load(file)))
    indptr = np.load(path)
    indptr[1], indptr[-1] = indptr[-1], indptr[1]
    np.save(path, indptr)
    with pytest.raises(SourceError, match="Regroup the data again"):
        vectorizer().fit(regrouped(tmp_path / "by_writer"))


def test_texts_of_dask_go_through_files(tmp_path):
    X = dd.from_pandas(pd.Series(TEXTS, name="words"), npartitions=3)
    with pytest.raises(TypeError, match=r"X\.to_frame") as caught:
        vectorizer().fit(X)
    folder = tmp_path / "texts"
    wrote, source = str(caught.value).split(": ", 1)[1].removesuffix(".").split(", then vips.data.")
    exec(wrote, {"X": X, "folder": folder})
    source = eval(source, {"ParquetTexts": ParquetTexts, "folder": folder})
    assert same_words(vectorizer(EXACT, 1e-9).fit(source), vectorizer(EXACT, 1e-9).fit(TEXTS))


@pytest.mark.parametrize("changed", [{"indptr": [0, 5, 2, 9]}, {"indices": [0, 99, 1]}, {"data": [0.5, 1.0, 1.0]}])
def test_a_kept_file_that_is_no_such_table_is_counted_again(tmp_path, changed):
    counts = sp.csr_array(np.eye(3, dtype=np.int64))
    _write(tmp_path / "good", counts)
    assert (_read(tmp_path / "good", 3, 3) != counts).nnz == 0
    assert _read(tmp_path / "good", 4, 3) is None
    for name, values in changed.items():
        setattr(counts, name, np.array(values))
    _write(tmp_path / "bad", counts)
    assert _read(tmp_path / "bad", 3, 3) is None

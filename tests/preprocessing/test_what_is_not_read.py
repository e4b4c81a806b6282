"""What a private fit cannot read: refused by its schema, or missing and said from released totals. One table, walked."""

import datetime
import re
import uuid
import warnings
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import vips
from tests.mutants import check_notices
from vips import (
    BayesianLinearRegression,
    BayesianLogisticRegression,
    CategoricalHMM,
    GaussianHMM,
    LatentClassAnalysis,
    LatentDirichletAllocation,
    MixedLatentClassAnalysis,
    PoissonHMM,
    PrivacyBudget,
    PrivacyPlan,
    PrivateClassifier,
    load,
)
from vips.data import Sequences
from vips.data._texts import PackedTexts
from vips.models import _sequences
from vips.preprocessing import PrivateCountVectorizer, TableEncoder, make_private_pipeline
from vips.report.unread import TELLS_OF_NOISE
from vips.tools.auditing.records import Table

N = 3_000
BUDGET = PrivacyBudget(8.0, 1e-6)
PLAN = PrivacyPlan(noise_multiplier=2.0, sampling="full", n_steps=8)
RNG = np.random.default_rng(0)
Y = RNG.integers(0, 2, N)
CODES = RNG.integers(0, 3, N)
WORDS = np.array(["A", "B", "C"], dtype=object)[CODES]
TWO_FORMS = np.where(np.arange(N) % 3 > 0, np.char.lower(WORDS.astype(str)), WORDS)
ACCENTS = np.char.add("e\u0301", WORDS.astype(str))  # Unicode's NFD
HALF_MISSING = np.where(np.arange(N) % 3 > 0, None, WORDS)
NUMBERS = RNG.uniform(0, 100, N)
DAYS = np.datetime64("2022-01-01") + RNG.integers(0, 700, N).astype("timedelta64[D]")
DOTS = pd.Series(DAYS).dt.strftime("%d.%m.%Y")
DAY_FIRST = pd.Series(DAYS).dt.strftime("%Y-%d-%m")  # of which those until the twelfth are dates
COMMAS = pd.Series(NUMBERS.astype(str)).str.replace(".", ",")
SOME_COMMAS = COMMAS.where(np.arange(N) % 2 > 0, NUMBERS.astype(str))
BOUNDS = (datetime.date(2022, 1, 1), datetime.date(2023, 12, 31))
STEPS = CODES.reshape(-1, 5)

COUNTS = pd.DataFrame(RNG.poisson(3.0, (N, 3)), columns=["A", "B", "C"])
SLOTS = pd.DataFrame({"who": np.arange(N) // 5, "day": np.arange(N) % 5 * 3, "code": CODES})
DATED = pd.DataFrame({"who": np.arange(N) // 5, "day": DOTS, "code": CODES})

# -- models: a declaration and a column, or what is read, to a fit ------------------------------------------------------------


def columns(values, declared) -> tuple:
    return pd.DataFrame({"x": values, "other": NUMBERS}), {"x": declared, "other": (0, 100)}


def regression(model, values, declared):
    table, declarations = columns(values, declared)
    budget = PrivacyBudget(16.0, 1e-6)
    return make_private_pipeline(TableEncoder(declarations), model, privacy=budget, n_steps=2).fit(table, Y)


def classifier(values, declared):
    table, declarations = columns(values, declared)
    return PrivateClassifier(declarations, privacy=BUDGET, n_steps=1).fit(table, Y)


def classes(values, declared):
    table, declarations = columns(values, declared)
    return MixedLatentClassAnalysis(1, columns=declarations, privacy=PLAN, random_state=0).fit(table)


def answers(values, declared):
    table = pd.DataFrame({"x": values, "other": WORDS})
    given = {"x": declared, "other": ["A", "B", "C"]}
    return LatentClassAnalysis(1, categories=given, privacy=PLAN, random_state=0).fit(table)


def arrow_answers(values):
    given = {"x": ["A", "B", "C"], "other": ["A", "B", "C"]}
    table = pa.table({"other": WORDS, "x": values})
    return LatentClassAnalysis(1, categories=given, privacy=PLAN, random_state=0).fit(table)


def codes_of_steps(X, lengths=None):
    return CategoricalHMM(1, n_symbols=3, typical_length=5, privacy=PLAN, random_state=0).fit(X, lengths)


def dated_steps(date_format, frame=DATED, privacy=PLAN):
    X = Sequences.from_frame(frame, by="who", order="day", columns="code", date_format=date_format)
    return CategoricalHMM(1, n_symbols=3, typical_length=5, privacy=privacy, random_state=0).fit(X)


def steps_in_slots():
    X = Sequences.from_frame(SLOTS, by="who", order="day", columns="code", every=1, max_length=13)
    return CategoricalHMM(1, n_symbols=3, typical_length=5, privacy=PLAN, random_state=0).fit(X)


def counts_of_words(X):
    return LatentDirichletAllocation(1, vocabulary=["A", "B", "C"], privacy=PLAN, random_state=0).fit(X)


def labels_of_two_types(X):
    return BayesianLogisticRegression(classes=(0, "yes"), max_norm=1.0, privacy=PLAN).fit(X, Y)


def counts_of_steps(X, lengths=None):
    return PoissonHMM(1, max_count=5, n_features=1, typical_length=5, privacy=PLAN, random_state=0).fit(X, lengths)


def numbers_of_steps(X, lengths=None):
    model = GaussianHMM(1, n_features=1, max_norm=3.0, typical_length=5, privacy=PLAN, random_state=0)
    return model.fit(X, lengths)


def words_of_texts(texts):
    vectors = PrivateCountVectorizer(max_words=20)
    return make_private_pipeline(vectors, LatentDirichletAllocation(1), privacy=BUDGET, n_steps=1).fit(texts)


LOGISTIC = partial(regression, BayesianLogisticRegression())
LINEAR = partial(regression, BayesianLinearRegression(target_range=(0, 1)))
DIAGONAL = partial(regression, BayesianLogisticRegression(covariance="diagonal"))
TABLES = {"logistic": LOGISTIC, "linear": LINEAR, "diagonal": DIAGONAL, "classifier": classifier, "mixed": classes}
CATEGORIES = TABLES | {"answers": answers}

CLASSES, PARTS = {"answers": answers, "mixed": classes}, {"mixed": classes, "classifier": classifier}
OF_DATES = {name: TABLES[name] for name in ("logistic", "linear", "diagonal", "classifier")}

# -- the table: models, kind of input and of values, and "read", a word of the error, or a word of the warning ----------------

READ, REFUSED, SAID = "read", "refused", "said"
LISTS, LENGTHS = list(STEPS), np.full(len(STEPS), 5)
OF_WORDS = np.array(["A", "B", "C"])[STEPS]
ROWS = [
    # numbers
    (TABLES, "floats", (NUMBERS, (0, 100)), READ, ""),
    (TABLES, "texts of numbers", (NUMBERS.astype(str), (0, 100)), READ, ""),
    (TABLES, "other texts of numbers", (COMMAS, (0, 100)), SAID, "'x': no number"),
    (TABLES, "lists", (pd.Series([[x] for x in NUMBERS]), (0, 100)), SAID, "'x': no number"),
    (TABLES, "dates as numbers", (DAYS, (0, 100)), REFUSED, "two dates|dtype is datetime"),
    (TABLES, "bounds in a list", (CODES, [18, 100]), REFUSED, r"Bounds are a tuple: write \(18, 100\)"),
    (TABLES, "two neighbouring codes", (CODES % 2, [0, 1]), READ, ""),
    (TABLES, "two other numbers", (CODES // 2 * 9, [9, 0]), READ, ""),
    ({"classifier": classifier}, "half missing, and declared", (HALF_MISSING, ["A", "B", "C", "(missing)"]), READ, ""),
    (PARTS, "half of the cells in texts of another form", (SOME_COMMAS, (0, 100)), SAID, "three quarters"),
    ({"logistic": LOGISTIC}, "learnt numbers, half in another form", (SOME_COMMAS, "number"), SAID, "in about [45].% of"),
    ({"mixed": classes}, "numbers far below their bounds", (NUMBERS, (1000, 2000)), SAID, "no number above 1000"),
    # dates
    (OF_DATES, "dates", (DAYS, BOUNDS), READ, ""),
    (OF_DATES, "ISO texts", (pd.Series(DAYS).dt.strftime("%Y-%m-%d"), BOUNDS), READ, ""),
    (OF_DATES, "other texts of dates", (DOTS, BOUNDS), SAID, "'x': no date"),
    ({"classifier": classifier}, "dates with the day first", (DAY_FIRST, BOUNDS), SAID, "three quarters of the cells"),
    ({"logistic": LOGISTIC}, "learnt dates with the day first", (DAY_FIRST, "date"), SAID, "in about (5.|6.)% of"),
    (OF_DATES, "whole numbers as dates", (CODES, BOUNDS), REFUSED, "two numbers"),
    (OF_DATES, "bounds of dates in a list", (DAYS, list(BOUNDS)), REFUSED, "Bounds are a tuple"),
    # categories
    (CATEGORIES, "words", (WORDS, ["A", "B", "C"]), READ, ""),
    (CATEGORIES, "other words", (WORDS, ["a", "b", "c"]), SAID, "'x': no category"),
    (CLASSES | PARTS | {"logistic": LOGISTIC}, "words in two forms", (TWO_FORMS, ["A", "B", "C"]), SAID, "three quarters of"),
    ({"logistic": LOGISTIC}, "half missing, and declared", (HALF_MISSING, ["A", "B", "C", "(missing)"]), READ, ""),
    ({"logistic": LOGISTIC}, "half missing, and learnt", (pd.Series(HALF_MISSING), "category"), READ, ""),
    (CLASSES | {"logistic": LOGISTIC}, "accents behind their letters", (ACCENTS, ["\u00e9A", "\u00e9B", "\u00e9C"]), READ, ""),
    (CATEGORIES, "a category that nobody has", (WORDS, ["A", "B", "C", "D"]), SAID, "category 'D'"),
    (CATEGORIES, "objects of whole numbers", (CODES.astype(object), ["0", "1", "2"]), SAID, "'x': no category"),
    (CATEGORIES, "floats", (CODES.astype(float), ["0", "1", "2"]), SAID, "'x': no category"),
    (CATEGORIES, "bytes", (pd.Series([word.encode() for word in WORDS]), ["A", "B", "C"]), SAID, "'x': no category"),
    (CATEGORIES, "whole numbers", (CODES, ["0", "1", "2"]), REFUSED, "holds numbers"),
    (CATEGORIES, "texts of whole numbers", (pd.Series(CODES.astype(str)), [0, 1, 2]), REFUSED, "holds text"),
    (CATEGORIES, "bytes in Arrow", (pd.Series([b"A"] * N, dtype=pd.ArrowDtype(pa.binary())), ["A"]), REFUSED, "binary"),
    # sequences
    ({"codes": codes_of_steps}, "arrays of codes", (LISTS,), READ, ""),
    ({"codes": codes_of_steps}, "codes from 1 on", ([steps + 1 for steps in LISTS],), SAID, "symbol 0"),
    ({"codes": codes_of_steps}, "arrays of words", (list(OF_WORDS),), SAID, "no symbol"),
    ({"codes": codes_of_steps}, "words and lengths", (OF_WORDS.ravel(), LENGTHS), REFUSED, "Steps of CategoricalHMM"),
    ({"codes": codes_of_steps}, "bytes and lengths", (OF_WORDS.ravel().astype("S"), LENGTHS), REFUSED, "dtype .S1"),
    ({"codes": codes_of_steps}, "dates and lengths", (pd.Series(DAYS), LENGTHS), REFUSED, "datetime64"),
    ({"codes": codes_of_steps}, "Arrow's words and lengths", (pa.array(OF_WORDS.ravel()), LENGTHS), REFUSED, "string"),
    ({"codes": codes_of_steps}, "objects and lengths", (OF_WORDS.ravel().astype(object), LENGTHS), SAID, "no symbol"),
    ({"counts": counts_of_steps}, "counts", (LISTS,), READ, ""),
    ({"counts": counts_of_steps}, "counts far above the largest", ([steps + 90 for steps in LISTS],), SAID, "no count below 5"),
    ({"counts": counts_of_steps}, "halves", ([steps + 0.5 for steps in LISTS],), SAID, "no count"),
    ({"numbers": numbers_of_steps}, "numbers", (LISTS,), READ, ""),
    ({"codes": codes_of_steps}, "most steps as words", ([*LISTS[:100], *OF_WORDS[100:]],), SAID, "three quarters of"),
    ({"codes": steps_in_slots}, "steps in slots of time, most of them missing", (), READ, ""),
    ({"numbers": numbers_of_steps}, "words", (list(OF_WORDS),), SAID, "no number"),
    ({"codes": dated_steps}, "dates of another format", ("%Y-%m-%d",), SAID, "There is no signal"),
    # names and labels
    ({"topics": counts_of_words}, "words", (COUNTS,), READ, ""),
    ({"topics": counts_of_words}, "columns without names", (COUNTS.to_numpy(),), READ, ""),
    ({"topics": counts_of_words}, "words in another order", (COUNTS[["A", "C", "B"]],), REFUSED, "Column 1 of X is named 'C'"),
    ({"topics": counts_of_words}, "other words", (COUNTS.rename(columns={"A": "a"}),), REFUSED, "Column 0 of X is named 'a'"),
    ({"topics": counts_of_words}, "Arrow's columns", (pa.table(dict(COUNTS[["B", "A", "C"]])),), REFUSED, "Column 0 of X"),
    ({"answers": arrow_answers}, "Arrow's words", (WORDS,), READ, ""),
    ({"logistic": labels_of_two_types}, "labels of two types", (np.ones((N, 1)),), REFUSED, "all numbers or all strings"),
    # texts
    ({"words": words_of_texts}, "texts", (["harbour ship"] * N,), READ, ""),
    ({"words": words_of_texts}, "lists of words", ([["harbour", "ship"]] * N,), REFUSED, "lists of words have none"),
    ({"words": words_of_texts}, "numbers", (CODES,), REFUSED, "must be text"),
    ({"words": words_of_texts}, "Arrow's lists", (pa.array([["harbour"]] * N),), REFUSED, "list"),
]  # fmt: skip
# Linear and diagonal regressions read cells as the logistic one does; their totals tell of what was not read, too.
KINDS_FOR_ALL = {"floats", "other texts of numbers", "words", "other words", "a category that nobody has", "dates"}
WALK = [
    pytest.param(of, *row, id=f"{name}-{kind}", marks=pytest.mark.slow if is_repeated else ())
    for models, kind, *row in ROWS
    for name, of in models.items()
    for is_repeated in [name in ("linear", "diagonal") and kind not in KINDS_FOR_ALL]
]


def told(fit, *given) -> tuple:
    """The fit or None, its error and its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            fitted, error = fit(*given), ""
        except (TypeError, ValueError) as raised:
            fitted, error = None, f"{type(raised).__name__}: {raised}"
    return fitted, error, [str(w.message) for w in caught if re.match(TELLS_OF_NOISE, str(w.message))]


@pytest.mark.parametrize(("fit", "given", "what", "word"), WALK)
def test_nothing_vanishes_without_a_word(fit, given, what, word, tmp_path):
    fitted, error, said = told(fit, *given)
    assert bool(error) == (what == REFUSED), error
    assert bool(said) == (what == SAID), said
    assert re.search(word, " ".join([error, *said])), (error, said)
    if fitted is not None:
        fitted.save(tmp_path / "fit")
        assert told(load, tmp_path / "fit")[2] == said


# -- an item of a list, or a cell of an object column, is a record's own -------------------------------------------------------

ITEMS = (
    np.array([0, 1]), ["A"], "A", b"A", 3.5, None, {"a": 1}, np.array([[0, 1]]), ["harbour"], datetime.date(2022, 1, 1),
    object(),
)  # fmt: skip


def test_an_item_of_any_type_decides_nothing():
    """Totals of so many items stand out from the noise; fits draw other noise, so that their numbers are not compared."""

    def with_cell(item):
        values = WORDS.copy()
        values[0] = item
        return told(answers, pd.Series(values, dtype=object), ["A", "B", "C"])

    def with_number(item):
        values = np.array([*NUMBERS], dtype=object)
        values[0] = item
        return told(LOGISTIC, pd.Series(values, dtype=object), "number")

    fits = {
        "sequences": lambda item: told(codes_of_steps, [item, *LISTS[1:]]),
        "words": lambda item: told(codes_of_steps, [item, *OF_WORDS[1:]]),
        "texts": lambda item: told(words_of_texts, [item, *["harbour ship"] * 300]),
        "answers": with_cell,
        "learnt numbers": with_number,
    }
    for name, fit in fits.items():
        outcomes = []
        for item in ITEMS:
            fitted, error, said = fit(item)
            shapes = {} if fitted is None or hasattr(fitted, "steps_") else fitted.noisy_totals_.average
            outcomes.append((error, said, {key: (value.shape, value.dtype) for key, value in shapes.items()}))
        assert all(outcome == outcomes[0] for outcome in outcomes), f"an item of the {name} decides {outcomes}"
    assert not outcomes[0][0]


def speaks(*_):
    raise RuntimeError("one record speaks")


def of_class(base, *methods, **others):
    """A subclass whose methods raise."""
    return type(base.__name__, (base,), dict.fromkeys(methods, speaks) | others)


ARRAY = np.array([0, 1])
HOSTILE = (
    *(ARRAY.view(of_class(np.ndarray, name)) for name in ("__getitem__", "__len__", "__array_function__", "__iter__")),
    *(ARRAY.view(of_class(np.ndarray, **{name: property(speaks)})) for name in ("shape", "ndim", "dtype")),
    of_class(str, "__len__", "__eq__", "__hash__", "strip", "encode")("A"),
    of_class(int, "__int__", "__index__", "__lt__", "__hash__")(1),
    of_class(uuid.UUID, __str__=lambda _: of_class(str, encode=lambda _: [])("A"))(int=1),
    of_class(object, __class__=property(speaks))(),
    of_class(object, __class__=str)(),
)


@pytest.mark.parametrize("place", range(len(HOSTILE)))  # pytest itself asks values
def test_what_an_item_of_a_class_of_its_own_does_is_not_asked(place):
    item = HOSTILE[place]
    cells = pd.Series([item, *["A"] * 59], dtype=object, name="x")
    ones, others = np.ones((60, 1)), {"other": WORDS[:60]}
    model, words = BayesianLogisticRegression(), {"other": ["A", "B", "C"]}
    grouped = BayesianLogisticRegression(max_norm=1.0, privacy=BUDGET.plan(n_steps=1, max_rows_per_group=2))
    for kind in ("number", "date", "category", ["A"]):
        pipeline = make_private_pipeline(TableEncoder({"x": kind} | words), model, privacy=BUDGET, n_steps=1)
        pipeline.fit(pd.DataFrame({"x": cells} | others), Y[:60])
    grouped.fit(ones, Y[:60], groups=cells)
    BayesianLogisticRegression(classes=["A", "B"], max_norm=1.0, privacy=PLAN).fit(ones, cells)
    for steps in ([item, *LISTS[:9]], [[0, item], *LISTS[:9]]):
        codes_of_steps(steps)
        assert Sequences.from_list(steps).shape == (10, 1)
    assert len(PackedTexts.of(cells)) == 60


def words_raise(patch):
    """What an ordinary fit does."""
    patch.setattr(_sequences.SequenceModel, "_width_of_lists", lambda model: 1)
    from_list = Sequences.from_list

    def strict(sequences, n_features=None):
        if isinstance(sequences[0], str):
            raise TypeError("a word")
        return from_list(sequences, n_features)

    patch.setattr(Sequences, "from_list", strict)


def test_an_item_that_decides_an_error_is_noticed(monkeypatch):
    says = "an item of the sequences decides"
    check_notices(test_an_item_of_any_type_decides_nothing, words_raise, monkeypatch, says)


# -- names --------------------------------------------------------------------------------------------------------------------


def undeclared(fit) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit()
    return [str(w.message) for w in caught if "not declared" in str(w.message)]


def test_columns_that_are_not_declared_are_named_once():
    """But not labels, ids, weights and exposures, which are columns of the table, too."""
    table = pd.DataFrame({"x": WORDS[:60], "age": NUMBERS[:60], "ill": Y[:60], "who": CODES[:60], "weight": 1.0})
    given = {"x": ["A", "B", "C"]}
    steps = TableEncoder(given), BayesianLogisticRegression()
    pipeline = make_private_pipeline(*steps, privacy=BUDGET, n_steps=1, max_weight=1.0)
    weighed = {"groups": table["who"], "sample_weight": table["weight"]}
    classifier = PrivateClassifier(given, privacy=BUDGET, n_steps=1)
    latent = LatentClassAnalysis(1, categories=given, privacy=BUDGET.plan(n_steps=2, max_weight=1.0))
    for fit in (
        lambda: pipeline.fit(table, table["ill"], **weighed),
        lambda: classifier.fit(table.drop(columns="weight"), table["ill"], groups=table["who"]),
        lambda: latent.fit(table.drop(columns="ill"), **weighed),
        lambda: TableEncoder(given).fit(table.drop(columns=["who", "weight"]), table["ill"]),
    ):
        (words,) = undeclared(fit)
        assert "'age'" in words
        assert not any(f"'{name}'" in words for name in ("x", "ill", "who", "weight"))
    assert undeclared(lambda: pipeline.fit(table.drop(columns="age"), table["ill"], **weighed)) == []
    assert pipeline[0].beside == ("ill", "who", None, "weight"), "names, and no labels"


def test_a_class_without_weights_says_so_before_anything_is_spent():
    with pytest.raises(TypeError, match=r"^PrivateClassifier takes no `sample_weight`"):
        PrivateClassifier([(0, 100)], privacy=BUDGET).fit(NUMBERS[:, None], Y, sample_weight=np.ones(N))
    pipeline = make_private_pipeline(TableEncoder(), vips.MixedLogisticRegression(), privacy=BUDGET, max_weight=1.0)
    with pytest.raises(TypeError, match=r"^MixedLogisticRegression takes no `sample_weight`"):
        pipeline.fit(pd.DataFrame({"x": NUMBERS}), Y, sample_weight=np.ones(N))


def _fit_beside(share, n, model):
    """A fit to a column in which so many rows have "yes", and another column."""
    rare = np.where(np.arange(n) < share * n, "yes", "no")
    table = pd.DataFrame({"rare": rare, "other": np.linspace(-3.0, 3.0, n)[::-1]})
    labels = (np.arange(n) % 3 == 0).astype(int)
    encoder = TableEncoder({"rare": ["no", "yes"], "other": (-4, 4)})
    return make_private_pipeline(encoder, model, privacy=PrivacyBudget(1.0, 1e-6)).fit(table, labels)


@pytest.mark.parametrize("model", [
    BayesianLinearRegression(target_range=(-6, 6)), BayesianLogisticRegression(classes=[0, 1]),
])  # fmt: skip
@pytest.mark.repeated("model1")
def test_a_rare_category_which_zooms_clip_is_not_called_unread_and_an_absent_one_is(model):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*nothing was read.*")
        for share in (0.02, 0.03, 0.04):
            _fit_beside(share, 4_000, model)
    with pytest.warns(vips.PrivacyWarning, match="'rare': of category 'yes' nothing was read"):
        _fit_beside(0.0, 80_000, model)


def _fit_of_labels(labels, n=20_000):
    """Labels of the yes and the no of about a half, or of another share."""
    rng = np.random.default_rng(1)
    X, model = rng.normal(0.0, 0.3, (n, 2)), BayesianLogisticRegression(max_norm=1.5, privacy=PrivacyBudget(1.0, 1e-6))
    return model.fit(X, labels(rng.random(n) < 1.0 / (1.0 + np.exp(-2.0 * X[:, 0]))))


@pytest.mark.parametrize(
    ("labels", "unread"), [(lambda yes: yes + 1, 0), (lambda yes: 2 * yes - 1, 0), (lambda yes: 10 * yes, 1)]
)
@pytest.mark.representatives("<lambda>-1")
def test_a_label_that_is_written_otherwise_is_said_and_a_rare_one_is_not_called_unread(labels, unread, tmp_path):
    says = f"y: of label {unread} nothing was read"
    with pytest.warns(vips.PrivacyWarning, match=says):  # one fit in fifty cannot tell
        fits = [_fit_of_labels(labels) for _ in range(3)]
    for place, fit in enumerate(fits):
        fit.save(tmp_path / str(place))
    with pytest.warns(vips.PrivacyWarning, match=says):
        _ = [load(tmp_path / str(place)) for place in range(3)]
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*nothing was read.*")
        _fit_of_labels(lambda yes: yes & (np.arange(len(yes)) % 40 == unread))


def test_a_fit_that_is_noise_names_the_usual_causes(tmp_path):
    model = BayesianLogisticRegression(classes=["no", "yes"], privacy=BUDGET, max_norm=1.0)
    labels = np.where(Y, "Yes", "No")
    for fit in (lambda: model.fit(np.ones((N, 1)), labels), lambda: load(tmp_path / "fit")):
        with pytest.warns(vips.PrivacyWarning, match="There is no signal.*usual causes.*declared class"):
            fit()
        model.save(tmp_path / "fit")


def test_an_audit_does_not_warn_of_its_own_noise():
    table = Table.of(np.zeros((20, 1)), np.arange(20) % 2)
    plan = PrivacyPlan(noise_multiplier=1e3, sampling="full", n_steps=2)
    model = BayesianLogisticRegression(max_norm=1.0, privacy=plan)
    with pytest.warns(vips.PrivacyWarning, match=TELLS_OF_NOISE):
        model.fit(table.X, table.y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table.fit(model)


# -- ordinary fits ------------------------------------------------------------------------------------------------------------

MIXED = {"x": (0, 100), "n": range(10), "g": ["A", "B", "C"]}
GOOD = pd.DataFrame({"x": NUMBERS, "n": CODES.astype(float), "g": WORDS})[:60]


def ordinary_classes(column, cell):
    table = GOOD.astype(object)
    table.loc[3, column] = cell
    return MixedLatentClassAnalysis(1, columns=MIXED, random_state=0).fit(table)


@pytest.mark.parametrize(("fit", "mended"), [
    (partial(ordinary_classes, "x", "3,5"), partial(ordinary_classes, "x", "3.5")),
    (partial(ordinary_classes, "n", 1.5), partial(ordinary_classes, "n", 1)),
    (partial(ordinary_classes, "n", -1), partial(ordinary_classes, "n", None)),
    (partial(ordinary_classes, "g", "a"), partial(ordinary_classes, "g", "")),
    (
        lambda: LatentClassAnalysis(1, categories=[3]).fit(CODES[:60, None] + 1),
        lambda: LatentClassAnalysis(1, categories=[3]).fit(CODES[:60, None] - (CODES[:60, None] == 0)),
    ),
    (
        lambda: CategoricalHMM(1, n_symbols=3).fit([LISTS[0] + 1, LISTS[1] + 1]),
        lambda: CategoricalHMM(1, n_symbols=3).fit([[0, None, 2], [np.nan, 1.0]]),
    ),
    (
        lambda: PoissonHMM(1, max_count=5).fit(Sequences.from_list([np.array([0.5, 1.0])])),
        lambda: PoissonHMM(1, max_count=5).fit(Sequences.from_list([np.array([np.nan, 9.0])])),
    ),
    (
        lambda: GaussianHMM(1).fit([[0.0, np.inf, 1.0]]),
        lambda: GaussianHMM(1).fit([[0.0, np.nan, 1.0]]),
    ),
    (
        partial(dated_steps, "%d.%m.%Y", DATED[:60].assign(day=["soon", *DOTS[1:60]]), None),
        partial(dated_steps, "%d.%m.%Y", DATED[:60].assign(day=[None, *DOTS[1:60]]), None),
    ),
    (
        lambda: PrivateClassifier({"x": "date"}, privacy=None).fit(pd.DataFrame({"x": DOTS[:60]}), Y[:60]),
        lambda: PrivateClassifier({"x": "date"}, privacy=None).fit(pd.DataFrame({"x": DAYS[:60]}), Y[:60]),
    ),
])  # fmt: skip
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_ordinary_fits_refuse_what_private_ones_count_as_missing(fit, mended):
    with pytest.raises(ValueError, match="None or NaN"):
        fit()
    mended()


@pytest.mark.parametrize("model", [
    CategoricalHMM(1, n_symbols=3), PoissonHMM(1, max_count=5, n_features=1), GaussianHMM(1, n_features=1), GaussianHMM(1),
])  # fmt: skip
@pytest.mark.parametrize("wide", [np.eye(3)[LISTS[0]], LISTS[0][None, :], np.c_[LISTS[0], LISTS[0]]])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_ordinary_fits_refuse_sequences_of_another_width(model, wide):
    with pytest.raises(ValueError, match=r"^Sequence 2 of X has shape .*\(n_steps,\)"):
        model.fit([*LISTS[:2], wide])
    fitted = model.fit([*LISTS[:2], np.zeros((0, 3)), LISTS[2][:, None]])
    with pytest.raises(ValueError, match=r"^Sequence 0 of X has shape"):
        fitted.score([wide])


def test_an_ordinary_model_refuses_what_its_fit_refuses_and_shows_the_number():
    model = CategoricalHMM(1, n_symbols=3).fit(LISTS[:60])
    for ask in (model.fit, model.score, model.predict, model.predict_proba):
        for step, shown in ((3, "3"), (1 + 1e-9, r"1\.000000001")):
            with pytest.raises(ValueError, match=f"X holds {shown}, but steps are codes from 0 to 2"):
                ask([[0, step, 1]])


@pytest.mark.parametrize("fit", [
    lambda: BayesianLogisticRegression().fit(NUMBERS[:, None], Y, weights=Y),
    lambda: CategoricalHMM(1, n_symbols=3).fit(LISTS, weights=Y),
    lambda: LatentClassAnalysis(1).fit(CODES[:, None], weights=Y),
])  # fmt: skip
def test_an_argument_that_no_fit_takes_is_refused_under_the_name_of_the_class(fit):
    with pytest.raises(
        TypeError, match=r"^(BayesianLogisticRegression|CategoricalHMM|LatentClassAnalysis)\.fit\(\) got .*'weights'"
    ) as refused:
        fit()
    assert ("write `sample_weight`" in str(refused.value)) != ("HMM" in str(refused.value))

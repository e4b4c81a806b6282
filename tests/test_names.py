"""Arguments and results are named alike in all models: the table of docs/every_fit.md."""

import ast
import inspect
import re

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin

from tests import ROOT
from tests.laws.cases import CASES, arguments, exposures
from vips import ConjugateExponentialModel, PrivacyPlan, models
from vips._support.fitted import BESIDE
from vips.data import Sequences

CLASSES = [getattr(models, name) for name in models.__all__]
SIZES = ("n_components", "n_chains", "n_regimes")
ONE_OF_EACH = {type(case.make_model()): case for case in CASES}
SCORED = [cls for cls in CLASSES if hasattr(cls, "score_samples")]


def fitted(cls, plan):
    """A model of the class, and its records."""
    case, rng = ONE_OF_EACH[cls], np.random.default_rng(0)
    model, records = case.make_model(privacy=plan, random_state=0), case.make_records(40, rng)
    return model.fit(*arguments(records), **exposures(records)), records


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_arguments(cls):
    arguments = inspect.signature(cls).parameters
    first = [name for name, argument in arguments.items() if argument.kind is argument.POSITIONAL_OR_KEYWORD]
    assert set(first) <= set(SIZES)
    assert ("n_components" in arguments) == ("n_components" in first)
    for name, argument in arguments.items():
        assert name not in ("n_iter", "n_steps", "n_sweeps")
        if name.endswith("prior"):
            assert not isinstance(argument.default, str | tuple)
    sample = getattr(cls, "sample", None)
    assert sample is None or list(inspect.signature(sample).parameters)[1:3] == ["n_samples", "random_state"]


@pytest.mark.parametrize("cls", SCORED, ids=lambda cls: cls.__name__)
def test_results(cls):
    model, X = fitted(cls, PrivacyPlan.non_private(n_steps=2))
    scores = model.score_samples(X)
    assert isinstance(scores, np.ndarray)
    assert scores.shape == (X.shape[0],)
    assert model.score(X) == pytest.approx(scores.mean())
    if not hasattr(model, "sample"):
        return
    lengths = {} if not isinstance(X, Sequences) else {"lengths": [4] * 5}
    drawn, hidden, *_ = model.sample(5, random_state=0, **lengths)
    assert type(drawn) is type(X)
    assert drawn.shape[0] == 5
    assert len(hidden) == (20 if lengths else 5)
    model.fit(drawn)  # records of the kind that it took


OF_SKLEARN = {*dir(BaseEstimator()), *dir(TransformerMixin), "fit", "predict", "predict_proba", "predict_log_proba"}
OF_SKLEARN |= {"decision_function", "score", "score_samples", "sample", "transform", "inverse_transform"}
# Names of a fitted model beside constructor arguments and the words of scikit-learn: those of all classes, and of the worst,
# GaussianHMM and CategoricalHMM (114 each) before PoissonHMM (113) and LinearDynamicalSystem (107). Lower them with the code.
MOST_OF_ALL, MOST = 88, 114


def names_of(model, names) -> set[str]:
    public = {name for name in names if not name.startswith("_") and not re.fullmatch("set_.*_request", name)}
    return public - OF_SKLEARN - set(model.get_params())


def test_a_fitted_model_has_few_names_and_shows_fewer():
    """Completion shows what users read and call; what the engine and comparisons ask is there, unlisted."""
    every_name = []
    for cls in CLASSES:
        model, _ = fitted(cls, PrivacyPlan(noise_multiplier=1.0, sampling="full", n_steps=3))
        every_name.append(names_of(model, object.__dir__(model)))
        assert len(every_name[-1]) <= MOST, f"{cls.__name__} has {len(every_name[-1])} names"
        assert names_of(model, dir(model)).isdisjoint({"blocks", "start", "phases", "to_posterior", "posterior_parts"})
        assert len(names_of(model, dir(cls()))) <= 15
        assert set(model.get_params()) <= set(dir(model))
    assert len(set.intersection(*every_name)) <= MOST_OF_ALL


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_fit_shows_what_it_takes_beside_rows_and_refuses_the_rest_by_name(cls):
    taken = inspect.signature(cls.fit).parameters
    for name in BESIDE:
        assert (name in taken) == bool(re.search(rf"\n        (\w+, )*{name}(, \w+)* : ", cls.fit.__doc__))
        if name not in taken:
            with pytest.raises(TypeError, match=f"^{cls.__name__} takes no `{name}`"):
                cls().fit(None, **{name: ()})


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_few_classes_stand_above_a_model(cls):
    """One reads a model, its family, and what all models share."""
    above = [base for base in cls.__mro__[1:] if base.__module__.startswith("vips.")]
    assert above.index(ConjugateExponentialModel) <= 2


# Without parsing: strings and comments, and what may be such a name or sentence. A name in an f-string has its place elsewhere.
TEXT = re.compile(r"""(?s)\"{3}.*?\"{3}|'{3}.*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|#[^\n]*""")
POSSIBLE_NAME = re.compile(r"(?<![.\w])(found|each|own|some|rest)\b")
POSSIBLE_SENTENCE = re.compile(r"""(["'.!?]|\n[ \t]*\n)\s*Of """)


def test_names_are_nouns_and_sentences_begin_with_their_subject():
    """In the package, tests and experiments, which are read once."""
    for path in (path for folder in ("vips", "tests", "experiments") for path in (ROOT / folder).rglob("*.py")):
        names, texts, source = set(), [], path.read_text(encoding="utf-8")
        if not (POSSIBLE_NAME.search(TEXT.sub("", source)) or POSSIBLE_SENTENCE.search(source)):
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Name | ast.arg | ast.FunctionDef):
                names.add(getattr(node, "id", None) or getattr(node, "arg", None) or node.name)
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
                texts.append(ast.get_docstring(node) or "")
        assert names.isdisjoint({"found", "each", "own", "some", "rest"}), path
        assert not [text for text in texts if re.search(r"(^|[.!?]\s+|\n\n\s*)Of ", text)], path

"""The experiments' own arithmetic. Their quick runs are in ``test_experiments_quick.py``; full ones are run by hand."""

import json
import math

import numpy as np
import pytest

from experiments import __main__ as entry
from experiments.privacy import accounting
from experiments.results import as_table, read_json, spread, write_json
from experiments.scoring import unigram_perplexity
from experiments.topics import paper_recipe
from experiments.topics import wikipedia as run
from experiments.topics.demo import matched
from vips import LatentDirichletAllocation, PrivacyPlan
from vips.datasets import make_lda_corpus


def test_noise_of_the_papers_recipe():
    assert paper_recipe.sigma_by_moments(2.4411, 1e-4) == pytest.approx(1.24, rel=2e-3)
    sigma = paper_recipe.sigma_by_strong_composition(2.44, 1e-4)
    step = np.sqrt(2 * np.log(1.25e6)) / sigma  # back from σ to ε of a step, then composed
    amplified = np.log1p(0.05 * np.expm1(step))
    total = np.sqrt(40 * np.log(1 / (1e-4 - 1e-6))) * amplified + 20 * amplified * np.expm1(amplified)
    assert total == pytest.approx(2.44, rel=1e-6)
    assert 1.2 < step < 1.8  # where its Gaussian formula is not valid


def test_the_papers_recipe_learns_without_noise_and_makes_no_claim():
    corpus = make_lda_corpus(2000, n_topics=4, n_words=80, document_length=50, random_state=0)
    train, test = corpus.counts[:1800], corpus.counts[1800:]
    model = paper_recipe.fit(train, 4, sigma=0.0, seed=0)
    assert model.perplexity(test) < unigram_perplexity(train, test)
    assert not hasattr(model, "privacy_")


def test_topics_are_matched_to_themselves():
    corpus = make_lda_corpus(500, n_topics=4, n_words=80, document_length=50, random_state=0)
    model = LatentDirichletAllocation(4, privacy=PrivacyPlan.non_private(n_steps=5), random_state=0).fit(corpus.counts)
    pairs = matched(model, model)
    assert all(i == j and overlap == pytest.approx(1.0) for i, j, overlap in pairs)


def test_table_and_retained_gain():
    row = {"method": "ours", "epsilon": 1.0, "delta": 1e-4, "noise_multiplier": 4.5, "perplexity": [1495.0]}
    assert run.retained(row) == 1.0
    assert "| ours | 1.0 | 0.0001 | 4.50 | 1495 (1495 to 1495) |" in run.table([row])


def test_results_are_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "result.json"
    write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert json.loads(path.read_text()) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]


RESULTS = [
    {"ε": [math.inf, 1.0, -math.inf], "inner": {"a": (1, [math.nan])}, "b": None, "c": True},
    [1.0, {"a": math.inf}],
    {"not_finite": [], "results": 3},
    {0.5: [math.inf], "e": np.float64(2.0)},
    math.inf,
    [1, "inf", None],
]


@pytest.mark.parametrize("value", RESULTS, ids=str)
def test_infinite_results_are_null_with_a_note_and_are_read_again(value, tmp_path):
    path = tmp_path / "result.json"
    write_json(path, value)

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    raw = json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    again = read_json(path)
    as_json = json.loads(json.dumps(value))  # Python's dialect: tuples become lists, keys strings
    assert json.dumps(again) == json.dumps(as_json)
    has_infinite = any(name in json.dumps(value) for name in ("Infinity", "NaN"))
    if has_infinite:
        assert {place["value"] for place in raw["not_finite"]} <= {"inf", "-inf", "nan"}
        assert json.dumps(raw["results"]).count("null") == len(raw["not_finite"]) + json.dumps(value).count("null")


TABLES = {
    "markdown": "Of it.\n\n| ε | share, % |\n| --- | --- |\n| 1 | 0.20 (0.10 to 0.30) |\n",
    "csv": 'ε,"share, %"\n1,0.20 (0.10 to 0.30)\n',
    "latex": "% Of it.\n\\begin{tabular}{ll}\n\\hline\n$\\varepsilon$ & share, \\% \\\\\n\\hline\n"
    "1 & 0.20 (0.10 to 0.30) \\\\\n\\hline\n\\end{tabular}\n",
}


@pytest.mark.parametrize("form", TABLES)
def test_tables_in_three_forms(form):
    assert as_table(["ε", "share, %"], [[1, spread([0.1, 0.3], 2)]], form, "Of it.") == TABLES[form]


def test_entry_point_lists_the_experiments(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["experiments"])
    assert entry.main() == 2
    printed = capsys.readouterr().out
    assert "lda_wikipedia" in printed
    assert "--quick" in printed


def test_curves_that_are_infinite_are_drawn(tmp_path):
    deltas = np.array([1e-12, 1e-9, 1e-5])
    lines = {label: [math.inf, 2.0, 1.0] for label in accounting.ROUTES}
    lines["Rényi divergences"] = [math.inf] * 3
    accounting.plot({"one": lines, "two": lines}, deltas, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").exists()

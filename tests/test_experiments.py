"""The experiments' own arithmetic; the experiments themselves are run by hand (``python -m experiments``)."""

import json

import numpy as np
import pytest

from experiments import __main__ as entry
from experiments.demo.run import matched
from experiments.lda_wikipedia import paper_recipe, run
from experiments.results import write_json
from experiments.scoring import unigram_perplexity
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
    with pytest.raises(ValueError):
        write_json(path, {"a": float("nan")})
    assert json.loads(path.read_text()) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_entry_point_lists_the_experiments(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["experiments"])
    assert entry.main() == 2
    assert "lda_wikipedia" in capsys.readouterr().out


def test_logistic_regressions_are_compared(capsys):
    from experiments.blr_stroke.run import main

    main(["--quick"])
    lines = {line.split("  ")[0]: line for line in capsys.readouterr().out.splitlines()}
    assert {"non-private, diagonal", "ours, diagonal", "DP-SGD"} <= set(lines)

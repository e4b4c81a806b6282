"""Every experiment and every benchmark has a quick run: the same code on a tiny instance, compared with known results.

The data sets are hidden from these runs, so that generated ones take their place.
"""

import csv
import importlib
import json
import pkgutil
from functools import partial

import pytest
from threadpoolctl import threadpool_limits

from experiments import __main__ as runner
from experiments import benchmarks, options, stand_ins
from experiments.__main__ import EXPERIMENTS, PAPER, run
from tests.experiments.quick_checks import CHECKS

RUNS = {name: partial(run, name) for name in EXPERIMENTS}
RUNS |= {
    name: lambda arguments, name=name: importlib.import_module(f"experiments.{name}").main(arguments)
    for name in (f"benchmarks.{m.name}" for m in pkgutil.iter_modules(benchmarks.__path__))
}


@pytest.mark.representatives("demo", "accounting")
@pytest.mark.parametrize("name", RUNS)
def test_runs_quickly_and_says_what_is_known(name, tmp_path, monkeypatch, capsys):
    def refuse(of):
        raise AssertionError(f"The quick run of {of} writes into experiments/results.")

    monkeypatch.setenv("VIPS_DATA_HOME", str(tmp_path / "nothing"))
    monkeypatch.setattr(options, "results_folder", refuse)
    with threadpool_limits(1):  # matrices are small; threads of a product would wait for each other on a busy machine
        RUNS[name](["--quick", "--out", str(tmp_path / "out")])
    printed = capsys.readouterr().out
    assert printed.startswith("A quick run on a tiny instance.")
    assert list((tmp_path / "out").iterdir())
    for path in (tmp_path / "out").glob("*.json"):
        json.loads(path.read_text(encoding="utf-8"), parse_constant=lambda constant: pytest.fail(constant))
    CHECKS[name](printed, tmp_path / "out")


@pytest.mark.parametrize("name", RUNS)
def test_every_module_can_be_imported(name):
    """The quick runs of most are slow."""
    module, _, function = EXPERIMENTS.get(name, (name,))[0].partition(":")
    assert callable(getattr(importlib.import_module(f"experiments.{module}"), function or "main"))


def test_every_figure_of_the_paper_has_its_experiments():
    assert set(PAPER) == {*(f"figure{i}" for i in (2, 3, 4, 5, 7)), "table1", "appendix"}
    assert {name for names in PAPER.values() for name in names} <= set(EXPERIMENTS)


def test_a_figure_of_two_experiments_has_two_folders(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(runner, "run", lambda name, arguments: seen.append((name, arguments)))
    monkeypatch.setattr(runner.sys, "argv", ["experiments", "figure5", "--quick", "--out", "here"])
    assert runner.main() == 0
    assert seen == [(name, ["--quick", "--out", f"here/{name}"]) for name in ("blr_stroke", "blr_adult")]


def test_every_quick_run_is_checked():
    assert set(CHECKS) == set(RUNS)


def test_a_quick_run_writes_nothing_unless_it_is_told_where(tmp_path, monkeypatch):
    monkeypatch.setattr(options, "results_folder", lambda name: tmp_path / name)
    parser = options.parser_of("experiments demo", "Words.")
    assert options.folder_of("demo", parser.parse_args(["--quick"])) is None
    assert options.folder_of("demo", parser.parse_args([])) == tmp_path / "demo"
    for arguments in (["--quick"], []):
        given = parser.parse_args([*arguments, "--out", str(tmp_path / "a" / "b")])
        assert options.folder_of("demo", given) == tmp_path / "a" / "b"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("lda_table1", ["--epsilons", "1"], "unrecognized arguments: --epsilons 1"),
        ("blr_stroke", ["--data", "."], "unrecognized arguments: --data ."),  # its records are generated
        ("sbn_mnist", ["--topics", "3"], "unrecognized arguments: --topics 3"),
        ("lda_figure2", ["--sizes", "0"], "invalid positive int value: '0'"),
        ("lda_figure3", ["--sigmas", "inf"], "invalid positive float value: 'inf'"),
        (
            "lda_figure3",
            ["--sigmas", "0.1"],
            "No ε is known for σ = 0.1 and S = 5,000: take a larger σ or a smaller S.",
        ),
        ("lda_table1", ["--sigmas", "1", "2"], "Table 1 is of one σ and one S"),
        ("blr_adult", ["--data", "nowhere"], "nowhere is not a folder"),
    ],
)
def test_an_option_that_an_experiment_cannot_use_is_refused_before_anything_else(name, arguments, said, capsys):
    with pytest.raises(SystemExit):
        run(name, arguments)
    shown = capsys.readouterr()
    assert said in shown.err
    assert not shown.out


def test_named_data_are_never_generated(tmp_path, monkeypatch):
    monkeypatch.setenv("VIPS_DATA_HOME", "elsewhere")
    with pytest.raises(FileNotFoundError, match=f"looked in {tmp_path}"):
        run("lda_table1", ["--quick", "--data", str(tmp_path)])


def test_options_change_a_quick_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("VIPS_DATA_HOME", str(tmp_path / "nothing"))
    run("lda_table1", ["--quick", "--topics", "2", "--format", "csv", "--out", str(tmp_path)])
    head, *lines = csv.reader((tmp_path / "results.csv").open(encoding="utf-8"))
    assert head == ["topic", "non-private", "moments accountant", "strong composition", "vips, its nearest topic"]
    assert [line[0] for line in lines] == 10 * ["1"] + 10 * ["2"]
    assert ",".join(lines[-1]) in capsys.readouterr().out


LOADERS = {
    "wikipedia": lambda quick: stand_ins.wikipedia(100, quick),
    "adult": stand_ins.adult,
    "diabetes": stand_ins.diabetes,
    "mnist": stand_ins.mnist,
}


@pytest.mark.parametrize("name", LOADERS)
def test_runs_at_full_size_take_no_stand_in(name, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("VIPS_DATA_HOME", str(tmp_path))
    with pytest.raises(FileNotFoundError):
        LOADERS[name](False)
    LOADERS[name](True)
    assert "generated data of the same shape" in capsys.readouterr().out

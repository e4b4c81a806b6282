"""``python -m experiments audit``: lower bounds on ε beside the claimed ε; audits of models, and of broken copies."""

from __future__ import annotations

import contextlib
import io
import logging
import time
from dataclasses import replace

import numpy as np
import pytest
from tqdm import tqdm

from experiments.options import folder_of, parser_of
from experiments.results import write_json, write_text
from tests.laws import test_mutants as mutants
from tests.laws.cases import BY_NAME, CASES, arguments
from tests.tools.auditing.audits import FULL, SAMPLED, break_everywhere
from tests.tools.auditing.test_audit_models import BAD_MODELS
from tests.tools.auditing.test_audit_mutants import MUTANTS
from vips import PrivacyPlan, audit
from vips.tools.auditing.canaries import canary_bound

CONFIDENCE = 1.0 - 1e-6
CLIP_NORM = 3.0
REPLACE = {"relation": "replace_one"}
MECHANISMS = [
    ("one step, full batch", {"noise_multiplier": 1.0, "sampling": "full", "n_steps": 1}),
    ("8 steps, full batch", {"noise_multiplier": 3.0, "sampling": "full", "n_steps": 8}),
    ("one step, Poisson", {"noise_multiplier": 0.8, "sampling_rate": 0.5, "n_steps": 1}),
    ("10 steps, Poisson", {"noise_multiplier": 1.0, "sampling_rate": 0.2, "n_steps": 10}),
    ("40 steps, Poisson", {"noise_multiplier": 0.8, "sampling_rate": 0.05, "n_steps": 40}),
    ("one step, full batch", {"noise_multiplier": 2.0, "sampling": "full", "n_steps": 1, **REPLACE}),
    ("8 steps, full batch", {"noise_multiplier": 6.0, "sampling": "full", "n_steps": 8, **REPLACE}),
    ("one step, Poisson", {"noise_multiplier": 1.6, "sampling_rate": 0.5, "n_steps": 1, **REPLACE}),
    ("10 steps, Poisson", {"noise_multiplier": 2.0, "sampling_rate": 0.2, "n_steps": 10, **REPLACE}),
    ("one step, full batch", {"noise_multiplier": 1.0, "sampling": "full", "n_steps": 1, "noise": "discrete"}),
    ("8 steps, full batch", {"noise_multiplier": 3.0, "sampling": "full", "n_steps": 8, "noise": "discrete"}),
    ("one step, Poisson", {"noise_multiplier": 1.0, "sampling_rate": 0.8, "n_steps": 1, "noise": "discrete"}),
    ("10 steps, Poisson", {"noise_multiplier": 2.0, "sampling_rate": 0.5, "n_steps": 10, "noise": "discrete"}),
    (
        "one step, full batch",
        {"noise_multiplier": 2.0, "sampling": "full", "n_steps": 1, "noise": "discrete", **REPLACE},
    ),
    (
        "8 steps, full batch",
        {"noise_multiplier": 6.0, "sampling": "full", "n_steps": 8, "noise": "discrete", **REPLACE},
    ),
    (
        "10 steps, Poisson",
        {"noise_multiplier": 2.0, "sampling_rate": 0.2, "n_steps": 10, "noise": "discrete", **REPLACE},
    ),
]
# One canary in each run: trials share nothing.
SINGLE = [MECHANISMS[0], MECHANISMS[3]]
N_RUNS, QUICK_RUNS = 1_000_000, 20_000
# The entries of the lists above and below that a quick run uses: both relations, discrete noise on samples; a broken copy.
QUICK_MECHANISMS = [MECHANISMS[0], MECHANISMS[5], MECHANISMS[11]]
QUICK_MODEL, QUICK_BROKEN = "beta-bernoulli", "noise_halved"


def measure(name: str, settings: dict, n_runs: int, rng, canaries_per_run: int | None = None) -> dict:
    plan = PrivacyPlan(clip_norm=CLIP_NORM, **settings)
    start = time.perf_counter()
    bound = canary_bound(plan, n_runs, rng, CONFIDENCE, canaries_per_run)
    return {
        "mechanism": name, "noise": plan.noise, "relation": plan.relation, "noise_multiplier": plan.noise_multiplier,
        "sampling_rate": plan.sampling_rate, "delta": bound.delta, "claim": bound.claim, "bound": bound.bound,
        "ratio": bound.ratio, "mu_claim": bound.mu_claim, "mu_bound": bound.mu_bound,
        "runs": bound.n_trials, "one_canary_per_run": canaries_per_run == 1, "exceeded": bound.exceeded,
        "seconds": time.perf_counter() - start,
    }  # fmt: skip


def audited(case, plan: PrivacyPlan, n_runs: int) -> dict:
    model = case.make_model(privacy=replace(plan, clip_norm=case.clip_norm))
    records = case.make_records(60, np.random.default_rng(0))
    start = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):  # one of the broken models prints
        report = audit(model, *arguments(records), n_runs=n_runs, random_state=0)
    return {
        "model": case.name,
        "noise": plan.noise,
        "failed": [finding.name for finding in report.failed],
        "values": {finding["name"]: finding["values"] for finding in report.to_dict()["findings"]},
        "seconds": time.perf_counter() - start,
    }


def mechanism_table(rows: list[dict]) -> str:
    lines = [
        "| mechanism | noise | relation | σ | q | δ | claim ε | lower bound | ratio | runs | verdict |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        runs = f"{row['runs']:,}" + (", one canary each" if row["one_canary_per_run"] else "")
        lines.append(
            f"| {row['mechanism']} | {row['noise']} | {row['relation'].replace('_', ' ')} | {row['noise_multiplier']:g} | "
            f"{row['sampling_rate']:g} | {row['delta']:g} | {row['claim']:.3f} | {row['bound']:.3f} | "
            f"{row['ratio']:.0%} | {runs} | {'REFUTED' if row['exceeded'] else 'consistent'} |"
        )
    return "\n".join(lines)


def model_table(rows: list[dict]) -> str:
    lines = [
        "| model | noise | most one record moved the sum, of what it may | lower bound, one step | verdict | seconds |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        sums = row["values"]["sensitivity on the lattice" if row["noise"] == "discrete" else "sensitivity"]
        step = row["values"]["one step of the model"]
        lines.append(
            f"| {row['model']} | {row['noise']} | {sums['tightness']:.4f} | {step['ratio']:.0%} of ε = {step['claim']:.3f} at "
            f"δ = {step['delta']:g} | {'failed: ' + '; '.join(row['failed']) if row['failed'] else 'passed'} | "
            f"{row['seconds']:.0f} |"
        )
    return "\n".join(lines)


def mutant_table(rows: list[dict]) -> str:
    lines = ["| broken | model | rejected by |", "| --- | --- | --- |"]
    for row in rows:
        lines.append(f"| {row['broken']} | {row['model']} | {'; '.join(row['failed']) or 'NOTHING'} |")
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    parser = parser_of("experiments audit", __doc__)
    parser.add_argument("--runs", type=int, help=f"trials of each mechanism; {N_RUNS:,} by default")
    options = parser.parse_args(arguments)
    folder = folder_of("audit", options)
    n_runs = options.runs or (QUICK_RUNS if options.quick else N_RUNS)
    logging.getLogger("absl").setLevel(logging.ERROR)
    rng = np.random.default_rng(0)
    models = [(case, noise) for case in CASES for noise in ("gaussian", "discrete")]
    coins = BY_NAME["beta-bernoulli"]
    broken = [(mutant.__name__, mutant, coins, FULL) for mutant in (mutants.noise_halved, mutants.noise_over_root_two)]
    broken += [(mutant.__name__, mutant, BY_NAME[case], plan or SAMPLED) for mutant, case, plan, _ in MUTANTS]
    broken += [
        (model.__name__, None, replace(BY_NAME[case], make_model=model), SAMPLED) for model, case, _ in BAD_MODELS
    ]
    mechanisms, single = MECHANISMS, SINGLE
    if options.quick:
        mechanisms, single = QUICK_MECHANISMS, SINGLE[:1]
        models = [(case, noise) for case, noise in models if case.name == QUICK_MODEL]
        broken = [line for line in broken if line[0] == QUICK_BROKEN]
    results: dict[str, list[dict]] = {"mechanisms": [], "models": [], "broken": []}
    with tqdm(total=len(mechanisms) + len(single) + len(models) + len(broken), desc="audits", disable=None) as progress:
        for name, settings in mechanisms:
            results["mechanisms"].append(measure(name, settings, n_runs, rng))
            progress.update()
        for name, settings in single:
            results["mechanisms"].append(measure(name, settings, n_runs // 40, rng, canaries_per_run=1))
            progress.update()
        for case, noise in models:
            results["models"].append(audited(case, replace(FULL, noise=noise), n_runs // 10))
            progress.update()
        for name, mutant, case, plan in broken:
            with pytest.MonkeyPatch.context() as patch:
                if mutant is not None:
                    break_everywhere(mutant, patch)
                results["broken"].append({"broken": name, **audited(case, plan, n_runs // 20)})
            progress.update()
    text = tables(results)
    print(text)
    if folder is not None:
        write_json(folder / "results.json", results)
        write_text(folder / "results.md", text + "\n")


def tables(results: dict[str, list[dict]]) -> str:
    """Tables of lower bounds beside claims, and of what audits find (docs/own_model.md)."""
    parts = {
        "Lower bounds on ε": mechanism_table(results["mechanisms"]),
        "Models of the test suite": model_table(results["models"]),
        "Broken copies of the code, and broken models": mutant_table(results["broken"]),
    }
    return "\n\n".join(f"### {title}\n\n{table}" for title, table in parts.items())

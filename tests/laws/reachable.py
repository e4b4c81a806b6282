"""The law of reachability: everything that can be reached from a fitted model, its posterior, its files and its report is
listed here, and is a function of the noisy totals.

The law gives the same noisy totals to fits of different records. Everything that can be reached after these fits must be equal
to the last bit.
"""

from __future__ import annotations

import copy
import pickle
import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.laws import checks
from tests.laws.cases import arguments, exposures
from tests.laws.walk import vips_globals, walk
from vips import PrivacyPlan
from vips.core.phases import phases_of, step_of
from vips.core.posteriors import posterior_arrays
from vips.persistence.archive import read_archive

# Attributes that a private fit adds to those of the constructor.
# Attributes of a fit that is running, and what is computed from released values when it is asked for.
WORKING = {"_computed", "_fitting_plan", "_read"}
LEARNT = {"n_features_in_", "last_posterior_", "noisy_totals_", "privacy_"}
OF_CLASS = {
    "BayesianLogisticRegression": {"classes_"},
    "MixedLogisticRegression": {"classes_"},
    "LatentClassAnalysis": {"categories_"},
}  # as declared
CHECKPOINT = {"format", "version", "kind", "model", "parameters", "plan", "n_features", "columns", "unit", "run", "step",
              "noise_std", "repeated", "arrays"}  # fmt: skip
SAVED = {"format", "version", "kind", "class", "parameters", "learnt", "report", "noise_std", "arrays"}
REPORT = {"releases", "unit", "only_noise", "preprocessing", "tuning", "also_not_covered", "versions", "date"}
RELEASE = {"what", "plan", "released", "declared", "mechanism", "threshold_delta", "on_invalid", "repeated_steps", "ledger",
           "sha256"}  # fmt: skip
# Of zooms, and of the search of a regression.
ZOOMS = {f"zooms_{name}" for name in (
    "shift", "scale", "seen", "count", "n_zooms", "widest", "tails", "quietest", "doubt",
    "counted_squares", "counted_noise_std", "counted_means", "counted_size", "counted_size_std",
)}  # fmt: skip
SEARCH = ZOOMS | {f"search_{name}" for name in (
    "point", "size", "unit", "kept_points", "kept_scores", "kept_squares", "kept_tilts",
    "kept_informations", "kept_counts", "kept_sizes",
)}  # fmt: skip
# For each class of posterior: what is written to files, and what else it holds in memory.
WRITTEN = {
    "dict": {"a", "b", "mean", "second"},
    "Dirichlet": {"concentration"},
    "TopicPosterior": {"concentration", "scale", "average_scale", "step"},
    "ClassPosterior": {
        "weights", "numbers_mean", "numbers_mean_precision", "numbers_shape", "numbers_rate", "counts_shape", "counts_rate",
        "answers_concentration", "answers_levels", "centre", "scale", "draws", "marginals", "plug_in",
    },
    "PairCounts": {"totals", "noise_std", "squares", "grid", "grid_noise"},
    "CoefficientPosterior": {"mean", "precision", "alpha_shape", "alpha_rate", "step", "public", "centre"} | SEARCH,
    "DiagonalCoefficientPosterior": {"mean", "precision", "alpha_shape", "alpha_rate", "step", "public"},
    "MixedPosterior": {"parameters", "parameters_cov", "step", "ball", "columns", *ZOOMS},
    "DynamicsPosterior": {
        "moves", "moves_cov", "loadings", "offset", "noise_variance", "start", "start_cov", "n_sequences", "n_steps", "step",
    },
    "FactorPosterior": {"mean", "precision", "count", "total_variance", "log_likelihoods"},
    "FieldPosterior": {"mean", "precision", "grid", "open_share", "noise_share", "dispersion"},
    "LinearPosterior": {
        "mean", "precision", "linear", "information", "noise_precision", "prior_precision", "n_iter", "centre", *SEARCH,
    },
    "MixturePosterior": {
        "covariance_type", "concentration", "mean", "mean_precision", "dof", "factor", "tail", "plug_in", "n_active",
        "parent", "portion", "prior_mean", "prior_covariance", "directions", "step",
    },
    "GaussianChainPosterior": {"start", "moves", "step", "plug_in"} | {f"gaussians_{name}" for name in (
        "covariance_type", "concentration", "mean", "mean_precision", "dof", "factor", "tail", "plug_in", "n_active",
        "parent", "portion", "prior_mean", "prior_covariance", "directions", "step",
    )},
    "ColumnChainPosterior": {
        "start", "moves", "plug_in", "numbers_mean", "numbers_mean_precision", "numbers_shape", "numbers_rate", "counts_shape",
        "counts_rate", "answers_concentration", "answers_levels", "marginals", "seed", "centre", "scale",
    },
    "FactorialPosterior": {
        "start", "moves", "step", "plug_in", "mean", "spread", "scale", "dof", "centre", "whitening",
    },
    "SwitchingPosterior": {
        "moves", "moves_cov", "regime_start", "regime_moves", "draws", "n_sequences", "n_steps",
    } | {f"shared_{name}" for name in (
        "moves", "moves_cov", "loadings", "offset", "noise_variance", "start", "start_cov",
    )},
    "SymbolPosterior": {
        "start", "moves", "emissions", "noise", "plug_in",
        "contexts_counts", "contexts_classes", "contexts_profile", "contexts_side",
    },
    "NetworkPosterior": {
        "weights_mean", "weights_precision", "hidden_mean", "hidden_precision", "visible_mean", "visible_precision",
        "coupling", "noise_var", "plug_in", "running", "step", "shrinkage_shape", "shrinkage_local_rate_shape",
        "shrinkage_local_rate_rate", "shrinkage_unit_rate_shape", "shrinkage_unit_rate_rate", "shrinkage_variance_rate",
        "shrinkage_variance_inverse_rate", "shrinkage_global_rate_shape", "shrinkage_global_rate_rate",
    },
}  # fmt: skip
HELD = {
    "TopicPosterior": {"parents", "carried"},
    "FactorialPosterior": {"draws", "chain", "tables"},
    "SwitchingPosterior": {"dynamics"},
    "MixedPosterior": {"frame", "coefficients", "effects"},
    "GaussianChainPosterior": {"draws", "chain", "gaussians", "tables"},
    "SymbolPosterior": {"draws", "chain", "contexts", "tables"},
    "ClassPosterior": {"columns", "frame", "_tables"},
    "ColumnChainPosterior": {"draws", "chain", "columns", "frame"},
    "CoefficientPosterior": {"search", "around", "var", "factor", "inverse_factor"},
    "DiagonalCoefficientPosterior": {"search"},
    "DynamicsPosterior": {"draws", "dynamics", "_known", "canonical", "uncertainty"},
    "FactorPosterior": {"cov"},
    "FieldPosterior": {"cov", "var", "factor", "inverse_factor"},
    "LinearPosterior": {"search", "zooms", "around", "cov", "var", "factor", "inverse_factor"},
    "MixturePosterior": {"draws", "inverse_factors", "tables"},
    "NetworkPosterior": {"weights", "hidden_bias", "visible_bias", "shrinkage", "_spreads"},
}
N_STEPS = 2


def parts_of(posterior) -> set[str]:
    """Names of what a posterior holds."""
    return set(posterior if isinstance(posterior, dict) else vars(posterior))


@contextmanager
def frozen_noise(seen):
    """Replace noisy totals by arrays drawn beforehand. ``seen(step)`` is called where noise would be drawn."""

    def add_noise(self, total, blocks, randomness, step):
        assert {n: np.shape(v) for n, v in total.items()} == {n: b.shape for n, b in blocks.items()}
        seen(step)
        return totals_of(blocks, step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PrivacyPlan, "add_noise", add_noise)
        yield


def totals_of(blocks, step) -> dict[str, np.ndarray]:
    """The frozen noisy totals of a step."""
    rng = np.random.default_rng(step)
    drawn = {name: rng.normal(20.0, 30.0, block.shape) for name, block in blocks.items()}
    return {n: v + np.swapaxes(v, -1, -2) if blocks[n].symmetric else v for n, v in drawn.items()}


def what_a_fit_leaves(case, records, noise: str):
    """A fitted model, and everything that exists after the fit, by place."""
    plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=0.6, n_steps=N_STEPS, clip_norm=case.clip_norm, noise=noise)
    model = case.make_model(privacy=plan, random_state=0)
    traces = {"model": model}
    with tempfile.TemporaryDirectory() as folder:
        checkpoint, saved = Path(folder, "fit.vips"), Path(folder, "saved.vips")

        def look(step):
            if checkpoint.exists():
                traces[f"checkpoint after step {step - 1}"] = read_archive(checkpoint, "checkpoint")

        with frozen_noise(look):
            model.fit(*arguments(records), **exposures(records), checkpoint=checkpoint)
        look(N_STEPS + 1)
        model.save(saved)
        traces["saved model"] = read_archive(saved, "model")
        known = (checkpoint, saved)  # read above: their raw bytes hold the time
        traces["files"] = {
            file.name: None if file in known else file.read_bytes() for file in sorted(Path(folder).iterdir())
        }
    traces["report"] = [str(model.privacy_), model.privacy_._repr_html_(), model.privacy_.to_dict()]
    traces["words"] = repr(model)
    traces["pickle"] = pickle.dumps(model)
    return model, traces


def walked(traces, with_match: bool) -> dict[str, list]:
    """Places and contents of all ``traces``, and of what the class and the modules of vips keep."""
    of_class = {name: value for name, value in vars(type(traces["model"])).items() if not callable(value)}
    there = {place: walk(thing, place) for place, thing in (traces | {"class": of_class}).items()}
    there["modules"] = vips_globals()
    model = traces["model"]
    if with_match and not model.takes_one_label:  # not for regressions: a second each, from `noisy_totals_` alone
        # last, because it may fit models to simulated records, which take the place of what was left of a chunk
        there["posterior"] = walk(copy.copy(model).posterior_, "posterior")
    return there


def everything_reachable_is_a_function_of_the_noisy_totals(case) -> None:
    """It is the same to the last bit after a fit to other records, to fewer, with hostile ones among them."""
    first, other = (case.make_records(n, np.random.default_rng(seed)) for n, seed in ((30, 20), (11, 21)))
    hostile = checks.stack(checks.stack(other, case.hostile["nan"]), case.hostile["huge"])
    for noise in ("gaussian", "discrete"):
        expected, contents = (
            walked(what_a_fit_leaves(case, records, noise)[1], noise == "gaussian") for records in (first, hostile)
        )
        assert set(contents) == set(expected), "which files there are depends on the records"
        for place, things in expected.items():
            differ = [here[0] for here, there in zip(things, contents[place], strict=False) if here != there]
            assert not differ, f"{differ[0]} depends on the records"
            assert len(things) == len(contents[place]), f"what can be reached from {place} depends on the records"


def what_can_be_reached_is_listed(case) -> None:
    """Every attribute, field and part of a file has a name that is listed above as public."""
    model, traces = what_a_fit_leaves(case, case.make_records(30, np.random.default_rng(20)), "gaussian")
    blocks, parameters, posterior = model.blocks(), set(model.get_params(deep=False)), model.last_posterior_
    learnt = LEARNT | OF_CLASS.get(type(model).__name__, set())
    held = set(vars(model)) - WORKING
    assert held == parameters | learnt, f"a model holds {held ^ (parameters | learnt)}"
    assert not any(getattr(model, name) for name in WORKING & set(vars(model))), "what a fit works with is still there"
    pickled = set(model.__getstate__()) - {"sent_from"} - WORKING
    assert pickled == parameters | learnt, f"a pickle holds {pickled ^ (parameters | learnt)}"
    kind = type(posterior).__name__
    held, written = parts_of(posterior), set(posterior_arrays(posterior))
    assert held <= WRITTEN[kind] | HELD.get(kind, set()), f"a posterior holds {held - WRITTEN[kind]}"
    assert written <= WRITTEN[kind], f"a posterior writes {written - WRITTEN[kind]}"
    assert set(vars(model.noisy_totals_)) == {"average", "noise_std", "steps"}, "noisy totals hold something else"
    kept, phases = sorted(model.kept_steps(N_STEPS)), phases_of(model, N_STEPS)
    assert [step.number for step in model.noisy_totals_.steps] == kept, "other steps are kept than the model says"
    of_steps = {step: step_of(phases, step)[0].blocks for step in range(1, N_STEPS + 1)}
    for step in model.noisy_totals_.steps:
        assert set(vars(step)) == {"number", "totals", "posterior"}, "a kept step holds something else"
        assert parts_of(step.posterior) <= held, "a kept posterior holds something else"
        assert set(step.totals) == set(of_steps[step.number])

    def names_of_steps(last: int) -> set[str]:
        blocks = {f"steps/{step}/totals/{name}" for step in kept if step <= last for name in of_steps[step]}
        return blocks | {f"steps/{step}/posterior/{name}" for step in kept if step <= last for name in written}

    assert set(model.noisy_totals_.average) == set(model.noisy_totals_.noise_std) == set(blocks)
    assert set(vars(model.privacy_)) == REPORT, f"a report holds {set(vars(model.privacy_)) ^ REPORT}"
    for release in model.privacy_.releases:
        assert set(vars(release)) == RELEASE, f"a release holds {set(vars(release)) ^ RELEASE}"
    for step in range(1, N_STEPS + 1):
        header, arrays = traces[f"checkpoint after step {step}"]
        assert set(header) == CHECKPOINT, f"a checkpoint's header holds {set(header) ^ CHECKPOINT}"
        of_step = of_steps[step]
        names = {f"noisy/{name}" for name in of_step} | {f"average/{name}" for name in blocks}
        names |= {f"posterior/{name}" for name in written}
        names |= names_of_steps(step)
        assert set(arrays) == names, f"a checkpoint holds {set(arrays) ^ names}"
        for name, total in totals_of(of_step, step).items():
            np.testing.assert_array_equal(arrays[f"noisy/{name}"], total, err_msg="not the noisy total of the step")
    header, arrays = traces["saved model"]
    assert set(header) == SAVED, f"a saved model's header holds {set(header) ^ SAVED}"
    assert set(header["learnt"]) == learnt - {"last_posterior_", "noisy_totals_", "privacy_"}
    names = written | {f"noisy_totals/{name}" for name in blocks} | names_of_steps(N_STEPS)
    assert set(arrays) == names, f"a saved model holds {set(arrays) ^ names}"
    assert set(traces["files"]) == {".fit.vips.lock", "fit.vips", "saved.vips"}, (
        f"files of a fit: {sorted(traces['files'])}"
    )


ALL = [everything_reachable_is_a_function_of_the_noisy_totals, what_can_be_reached_is_listed]

"""Private regressions that search, from outside: what one record or person moves in each step of a fit, and its noise.

Fits are real ones, also such that were killed between zooms and scores; C is not what they find, but stated. A fit that was
killed after any step can go on.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pytest

from tests.laws.checks import SENSITIVITY_FACTOR
from tests.laws.checks import _coordinates as coordinates
from tests.laws.test_reach_mutants import squares_of_a_person_are_those_of_pieces
from tests.mutants import check_notices
from tests.steps import Stop, stopped_after
from vips import (
    BayesianBinomialRegression,
    BayesianLinearRegression,
    BayesianLogisticRegression,
    BayesianNegativeBinomialRegression,
    CheckpointError,
    MixedLogisticRegression,
    PrivacyPlan,
    door,
)
from vips.core import engine
from vips.core.phases import FitPhase
from vips.core.sums import regressions
from vips.core.sums.regressions import RegressionSums
from vips.models._coordinates import Zooms
from vips.models._search import Search
from vips.models.regression import contract
from vips.models.second_moments import linear_regression
from vips.persistence.checkpoint import Journal

N_STEPS, N_ZOOMS = 12, 4
N_VALUES = 800  # of noise: their deviation is within 0.13 of 1 but once in 10⁷ times
N_ROWS, PIECE = 600, 240  # of a person, and of what is computed at a time
LARGEST = 1.0 + 1e-6  # share of a record, over the plan's clip norm
SIZES = (0.5, 3.3)


def plan_of(settings) -> PrivacyPlan:
    return PrivacyPlan(**{"noise_multiplier": 0.3, "sampling_rate": 0.9, "n_steps": N_STEPS} | settings)


def logistic(**settings):
    return BayesianLogisticRegression(privacy=plan_of(settings), max_norm=2.0, random_state=0)


def logistic_without_intercept():
    return BayesianLogisticRegression(privacy=plan_of({}), max_norm=2.0, fit_intercept=False, random_state=0)


def binomial(**settings):
    return BayesianBinomialRegression(n_trials=2, privacy=plan_of(settings), max_norm=2.0, random_state=0)


def counts(**settings):
    return BayesianNegativeBinomialRegression(
        privacy=plan_of(settings), max_norm=2.0, max_count=9, exposure_bounds=(0.5, 8.0), random_state=0
    )


def linear(**settings):
    return BayesianLinearRegression(privacy=plan_of(settings), max_norm=2.0, target_range=(-1.0, 2.0), random_state=0)


def linear_without_intercept():
    """Whose ends of the range are far from 0 on one side."""
    ends = {"target_range": (0.0, 10.0), "fit_intercept": False}
    return BayesianLinearRegression(privacy=plan_of({"max_weight": 1.0}), max_norm=2.0, random_state=0, **ends)


def mixed(**settings):
    effects = ("intercept", 0)
    return MixedLogisticRegression(random_effects=effects, privacy=plan_of(settings), max_norm=2.0, random_state=0)


# how a model is made, and what its fit takes besides X and y
FITS: dict[str, tuple[Callable, tuple[str, ...]]] = {
    "logistic, persons with weights": (lambda: logistic(max_weight=1.0), ("groups", "sample_weight")),
    "logistic, persons with weights, on a lattice": (
        lambda: logistic(max_weight=1.0, noise="discrete", max_rows_per_group=N_ROWS, clip_norm=1.0),
        ("groups", "sample_weight"),
    ),
    "logistic without intercept, persons": (logistic_without_intercept, ("groups",)),
    "linear, persons with weights": (lambda: linear(max_weight=1.0), ("groups", "sample_weight")),
    "linear without intercept, persons with weights": (linear_without_intercept, ("groups", "sample_weight")),
    "counts with exposures": (counts, ("exposure",)),
    "counts with exposures, persons": (counts, ("groups", "exposure")),
}
# those whose fits are killed after each of their first steps: some have no zoom, and of 40 steps each zoom has two
KILLED = {
    "logistic": (logistic, ()),
    "binomial": (binomial, ()),
    "counts": (counts, ("exposure",)),
    "linear": (linear, ()),
    "mixed": (mixed, ("groups",)),
}
LENGTHS, N_KILLS = (1, 2, 3, 4, 40), 10


def table(names, rng, n=200) -> dict[str, np.ndarray]:
    """What a fit takes, of so many rows; persons have up to two."""
    X = rng.normal(0.4, [0.8, 0.1, 0.4, 0.02], (n, 4))
    y = rng.poisson(2.0, n) if "exposure" in names else rng.integers(0, 2, n)
    besides = {
        "groups": np.arange(n) // 2,
        "sample_weight": np.where(rng.random(n) < 0.5, 1.0, rng.uniform(0.0, 1.0, n)),
        "exposure": rng.uniform(0.1, 10.0, n),
    }
    return {"X": X, "y": y.astype(float)} | {name: besides[name] for name in names}


@dataclass
class Step:
    """What a fit did in a step: its phase, posterior and plan, and what draws its noise again, by block."""

    number: int
    phase: FitPhase
    posterior: object
    plan: PrivacyPlan
    draw: Callable[[], list[dict[str, np.ndarray]]]


def steps_of_fit(model, records, **named) -> list[Step]:
    """The steps of a fit, as the engine makes them."""
    steps, clipped_sum, add_noise = [], engine.clipped_sum, PrivacyPlan.add_noise

    def noted_sum(model, phase, data, posterior, plan, randomness, t, *others):
        steps.append(Step(t, phase, posterior, plan, list))
        return clipped_sum(model, phase, data, posterior, plan, randomness, t, *others)

    def noted_noise(self, total, blocks, randomness, t):
        zero = {name: np.zeros_like(value) for name, value in total.items()}
        least = min(coordinates(np.zeros(block.shape), block).size for block in blocks.values())
        times = range(-(-N_VALUES // least))
        steps[-1].draw = lambda: [add_noise(self, zero, blocks, randomness, t) for _ in times]
        return add_noise(self, total, blocks, randomness, t)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "clipped_sum", noted_sum)
        patch.setattr(PrivacyPlan, "add_noise", noted_noise)
        model.fit(**records, **named)
    return steps


def first_of_phases(steps) -> list[Step]:
    """The first and the last step of each phase."""
    names = [step.phase.name for step in steps]
    places = {names.index(name) for name in names} | {len(names) - 1 - names[::-1].index(name) for name in names}
    return [steps[place] for place in sorted(places)]


def moved_by(model, step, records) -> np.ndarray:
    """What these rows, of one record, add to the sum of a step, in units of the clip norm."""
    plan = replace(step.plan, sampling="full", sampling_rate=1.0)
    model.use_plan(plan)
    named = {name: records.get(name) for name in ("groups", "sample_weight")}
    vars(model).pop("takes_one_label", None)
    model.beside = door.Beside(records.get("exposure"))
    data = door.with_exposures(model, model.records_of(records["X"], records["y"]))
    data = door.persons_of(model, door.with_weights(model, data, named["sample_weight"]), named["groups"])
    total, blocks = (
        engine.clipped_sum(model, step.phase, data, step.posterior, plan, plan.randomness(0), 1),
        step.phase.blocks,
    )
    if plan.rounds_records:
        lattice = plan.lattice(blocks)
        total = {name: lattice.values(total[name], block) for name, block in blocks.items()}
    parts = [np.ravel(total[name]) / block.scale for name, block in blocks.items()]
    return np.concatenate(parts) / plan.clip_norm


def repeated(records, rows) -> dict[str, np.ndarray]:
    """These rows, as those of one person if there are persons."""
    taken = {name: value[rows] for name, value in records.items()}
    return taken | ({"groups": np.zeros(len(rows), int)} if "groups" in records else {})


def records_of_one(names, rng, ends=()):
    """Single records: rows of the table, rows far out, targets at the ends of their range, and persons of many rows, alike,
    different, and small."""
    records = table(names, rng, N_ROWS)
    for end, size in product(ends, [0.0, *np.geomspace(0.1, 10.0, 12)]):
        yield repeated(records, np.array([0])) | {"X": size * rng.normal(size=(1, 4)), "y": np.array([end])}
    for i in range(6):
        yield repeated(records, np.array([i]))
    for size in (1e-3, 1.0, 1e6):
        far = repeated(records, np.array([0])) | {"X": size * rng.normal(size=(1, 4))}
        far |= {"sample_weight": np.ones(1)} if "sample_weight" in names else {}
        yield far | {"y": np.array([9.0 if "exposure" in names else 1.0])}
    if "groups" not in names:
        return
    for n in (3, PIECE, N_ROWS):
        yield repeated(records, np.arange(n))
        yield repeated(records, np.zeros(n, int))
        yield repeated(records, np.zeros(n, int)) | {"y": np.resize([0.0, 1.0], n)}
    direction, labels = rng.normal(size=4), np.full(N_ROWS, 1.0)
    for size in np.geomspace(1e-4, 1.0, 17):  # of which some are just not clipped
        yield repeated(records, np.zeros(N_ROWS, int)) | {"X": np.tile(size * direction, (N_ROWS, 1)), "y": labels}


def check_pieces(model, step, persons) -> None:
    """A person of many rows counts alike in a chunk that holds them all, and in several; but for the slack of norms."""
    in_pieces = [moved_by(model, step, one) for one in persons]
    model.chunk_size = 2 * N_ROWS
    for one, moved in zip(persons, in_pieces, strict=True):
        np.testing.assert_allclose(moved, moved_by(model, step, one), rtol=1e-7, atol=1e-12, err_msg="in pieces")
    model.chunk_size = PIECE


def check_fit(name, size, path=None) -> None:
    """Each phase's largest share is at most one clip norm, and its noise that of the clip; with a ``path``, of what a fit does
    after it was killed before its scores."""
    make, names = FITS[name]
    rng = np.random.default_rng(3)
    records, killed = table(names, rng), {} if path is None else {"checkpoint": path}
    if ends := getattr(make(), "target_range", ()):
        records["y"] = np.array(ends)[records["y"].astype(int)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contract, "_SIZES", (size, size))
        patch.setattr(linear_regression, "_SIZES", (size, size))
        patch.setattr(linear_regression, "_NARROWER", (1.0, 1.0))
        if path is not None:
            with pytest.raises(Stop):
                stopped_after(make(), N_ZOOMS).fit(**records, **killed)
        model = make()
        steps = steps_of_fit(model, records, **killed)
    assert [step.number for step in steps] == list(range(1 if path is None else N_ZOOMS + 1, N_STEPS + 1))
    assert all(step.posterior.search.size == size for step in steps if hasattr(step.posterior, "search"))
    model.chunk_size = PIECE
    ones, largest = list(records_of_one(names, rng, ends)), {}
    of_many_rows = [one for one in ones if len(one["y"]) == N_ROWS]
    for step in first_of_phases(steps):
        assert step.plan.clip_norm == model.default_clip()
        allowed = SENSITIVITY_FACTOR if step.plan.rounds_records else LARGEST
        shares = [np.linalg.norm(moved_by(model, step, one)) for one in ones]
        assert max(shares) <= allowed, (
            f"in step {step.number}, {step.phase.name}, a record moves the sum by {max(shares)} C"
        )
        if not step.plan.rounds_records:
            check_pieces(model, step, of_many_rows[:2])
        largest[step.phase.name] = max(*shares, largest.get(step.phase.name, 0.0))
        draws = step.draw()
        for block_name, block in step.phase.blocks.items():
            values = np.concatenate([coordinates(noise[block_name] / block.scale, block) for noise in draws])
            ratio = np.sqrt(np.mean(np.square(values))) / (step.plan.noise_multiplier * step.plan.clip_norm)
            assert abs(ratio - 1.0) < 0.13, f"the noise of {block_name} is {ratio:.3g} of what is stated"
    assert min(largest.values()) > 0.6, f"no record comes near the clip: {largest}"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", FITS)
@pytest.mark.repeated(
    "logistic, persons with weights-0.5",
    "logistic, persons with weights, on a lattice-0.5",
    "linear, persons with weights-0.5",
    "counts with exposures-0.5",
    "counts with exposures, persons-0.5",
)
def test_no_record_moves_more_and_noise_is_as_stated(name, size):
    check_fit(name, size)


@pytest.mark.parametrize(
    "name", ["logistic, persons with weights, on a lattice", "linear, persons with weights", "counts with exposures"]
)
def test_so_it_is_after_a_fit_was_killed_before_its_scores(name, tmp_path):
    check_fit(name, 3.3, tmp_path / "fit.vips")


def test_a_tiny_weight_does_not_enlarge_the_other_rows_of_a_person():
    """The weight of the clip times a subnormal one is rounded to twice as much."""
    model, rng = linear_without_intercept(), np.random.default_rng(3)
    step = steps_of_fit(model, table(("groups", "sample_weight"), rng))[-1]
    one = {"groups": np.zeros(2, int), "sample_weight": np.array([1.0, 5e-324]), "y": np.full(2, 10.0)}
    for x, cut in product(rng.normal(size=(6, 1, 4)), np.linspace(0.05, 1.0, 20)):
        of_clip = replace(step, plan=replace(step.plan, clip_norm=cut * step.plan.clip_norm))
        moved = np.linalg.norm(moved_by(model, of_clip, one | {"X": np.vstack([x, 1e-6 * x])}))
        assert moved <= LARGEST, f"a person moves the sum by {moved} C"


def check_killed(name, folder) -> None:
    """A fit that was killed after any step goes on, and one that has ended can be opened again."""
    make, names = KILLED[name]
    records, path, commit = table(names, np.random.default_rng(3), 20), folder / "fit.vips", Journal.commit

    def commit_and_copy(self, step, *state):
        commit(self, step, *state)
        shutil.copy(path, folder / f"{step}.vips")

    for n_steps in LENGTHS:
        path.unlink(missing_ok=True)
        with pytest.MonkeyPatch.context() as patch, suppress(Stop):
            patch.setattr(Journal, "commit", commit_and_copy)
            stopped_after(make(n_steps=n_steps), N_KILLS).fit(**records, checkpoint=path)
        for step in range(1, min(n_steps, N_KILLS) + 1):
            try:
                with suppress(Stop):
                    stopped_after(make(n_steps=n_steps), 0).fit(**records, checkpoint=folder / f"{step}.vips")
            except CheckpointError as error:
                raise AssertionError(f"a fit cannot go on after step {step} of {n_steps}: {error}") from error


@pytest.mark.filterwarnings("ignore:.*holds a finished fit")
@pytest.mark.parametrize("name", KILLED)
def test_a_fit_that_was_killed_after_any_step_goes_on(name, tmp_path):
    check_killed(name, tmp_path)


# -- broken copies ----------------------------------------------------------------------------------------------


def a_checkpoint_forgets_the_size(patch):
    """Nothing moves by more, but it is not the C of the fit."""
    original = Search.from_arrays.__func__
    patch.setattr(
        Search,
        "from_arrays",
        classmethod(lambda cls, arrays: original(cls, dict(arrays) | {"search_size": np.array(1.0)})),
    )


def statistics_are_multiplied_after_the_clip(patch):
    """By C, as if the clip norm were C and the noise that of 1."""
    original = engine.clipped_sum

    def mutant(model, phase, data, posterior, *others):
        total = original(model, phase, data, posterior, *others)
        return {name: value * (posterior.search.size if name == "linear" else 1) for name, value in total.items()}

    patch.setattr(engine, "clipped_sum", mutant)


def noise_of_scores_is_divided_by_the_size(patch):
    original = PrivacyPlan.add_noise

    def mutant(self, total, *others):
        noisy = original(self, total, *others)
        return noisy | (
            {"linear": total["linear"] + (noisy["linear"] - total["linear"]) / 3.3} if "linear" in noisy else {}
        )

    patch.setattr(PrivacyPlan, "add_noise", mutant)


def nothing_is_known_of_rows_before_a_zoom(patch):
    """Their number is none, which files may not hold."""
    original = Zooms.beginning.__func__
    patch.setattr(Zooms, "beginning", classmethod(lambda *given: replace(original(*given), count=np.nan)))


def pieces_are_as_long_as_their_scores(patch):
    def mutant(self, norms, blocks):
        return float(self.forms[0].lengths(blocks).max(axis=0) @ (norms > 0.0))

    patch.setattr(RegressionSums, "piece_norm", mutant)


def long_persons_are_whole_where_a_chunk_holds_them(patch):
    patch.setattr(regressions, "PIECE", N_ROWS)


@pytest.mark.parametrize(
    ("mutant", "name", "says"),
    [
        (pieces_are_as_long_as_their_scores, "linear, persons with weights", "scores, a record moves the sum"),
        (
            squares_of_a_person_are_those_of_pieces,
            "logistic without intercept, persons",
            "scores, a record moves the sum",
        ),
        (long_persons_are_whole_where_a_chunk_holds_them, "linear, persons with weights", "in pieces"),
        (statistics_are_multiplied_after_the_clip, "counts with exposures", "scores, a record moves the sum by"),
        (noise_of_scores_is_divided_by_the_size, "counts with exposures", "the noise of linear is 0"),
    ],
)
def test_mutant_is_noticed(mutant, name, says, monkeypatch):
    check_notices(lambda: check_fit(name, 3.3), mutant, monkeypatch, says)


def test_a_checkpoint_that_forgets_is_noticed(monkeypatch, tmp_path):
    check = lambda: check_fit("counts with exposures", 3.3, tmp_path / "fit.vips")  # noqa: E731
    check_notices(check, a_checkpoint_forgets_the_size, monkeypatch)


@pytest.mark.parametrize("name", ["counts", "mixed"])
def test_fits_that_could_not_go_on_do_not_begin(name, monkeypatch, tmp_path):
    """A posterior that no checkpoint gives back is refused before a step."""
    nothing_is_known_of_rows_before_a_zoom(monkeypatch)
    with pytest.raises(ValueError, match="coordinates are none that a fit makes"):
        check_killed(name, tmp_path)

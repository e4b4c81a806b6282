"""The laws, as functions that raise AssertionError. ``test_laws`` runs them; ``test_mutants`` breaks the code and
demands that they notice."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from tests.laws.cases import arguments, exposures
from tests.steps import with_updates
from vips import ConjugateExponentialModel, PrivacyPlan
from vips.core import engine
from vips.core.exact.rowwise import PIECE
from vips.core.phases import FitPhase, completed, phases_of
from vips.data import InMemoryData, Sequences, check_data
from vips.models._coordinates import CONSTANT
from vips.persistence.steps import as_lists

SENSITIVITY_FACTOR = 1.0 + 2.0**-9  # of hardened sums, as docs/guarantee.md states it
FULL = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=2, sampling="full")
SAMPLED = PrivacyPlan(noise_multiplier=1.0, sampling_rate=0.4, n_steps=3)
# step sizes depend on these
AS_SAMPLED = {name: getattr(SAMPLED, name) for name in ("sampling", "sampling_rate", "n_steps")}


def as_data(records):
    """The data source for the engine. Labelled records are ``Records``; a single row of them ends in its label, or in a count
    and its exposure."""
    if exposures(records):
        return InMemoryData(records.X, records.y)
    return InMemoryData(records) if isinstance(records, Sequences) else check_data(*arguments(records))


def as_in_a_fit(model, records) -> None:
    """The model as during a fit to such records."""
    model.n_features_in_ = records.shape[1]
    if exposures(records):
        model.takes_one_label = False


def fit(model, records):
    return model.fit(*arguments(records), **exposures(records))


def stacked(records, rows):
    for row in rows:
        records = stack(records, row)
    return records


def stack(records, row, first=False):
    """``records`` with one more row at the end, or at the beginning."""
    if hasattr(records, "y"):
        width = records.X.shape[1]
        label = row[width:].reshape(1, *records.y.shape[1:])
        labels = [label, records.y] if first else [records.y, label]
        return replace(records, X=stack(records.X, row[:width], first), y=np.concatenate(labels))
    if isinstance(records, Sequences):
        row = Sequences(row, [0, len(row)])
        return stack_all(row, records) if first else stack_all(records, row)
    row = sp.csr_array(row[None]) if sp.issparse(records) else row[None]
    parts = [row, records.astype(float)] if first else [records.astype(float), row]
    return sp.csr_array(sp.vstack(parts, format="csr")) if sp.issparse(records) else np.vstack(parts)


def prepared(case, n, seed=0, **plan_changes):
    """A model ready for the engine (as inside ``fit``), records, and a posterior from random totals."""
    rng = np.random.default_rng(seed)
    of_phase = {"n_steps": 24} if case.phase else {}  # all zooms
    plan = replace(FULL, **({"clip_norm": case.clip_norm} | of_phase | plan_changes))
    model = case.make_model(privacy=plan, random_state=0)
    records = case.make_records(n, rng)
    as_in_a_fit(model, records)
    initial = {name: np.abs(rng.normal(5.0, 2.0, block.shape)) for name, block in model.blocks().items()}
    if case.sparse:
        initial = {name: 1e3 * (rng.random(value.shape) < 0.05) for name, value in initial.items()}
    # from noisy totals; of sparse cases from exact ones, so that entries stay at the prior
    posterior = model.to_posterior(initial, dict.fromkeys(initial, 0.0 if case.sparse else 1.0), None)
    if case.phase:
        posterior = searching(case, model, posterior, rng)
        in_phase(model, case.phase)
    return model, plan, records, posterior


def searching(case, model, posterior, rng):
    """The posterior of a regression before steps of ``case.phase``, after zooms that released totals of random rows."""
    n_zooms, d = model._n_zooms(model.plan_of_fit().n_steps), len(zooms_of(posterior).seen)
    for i in range({"zoom": 1, "last zoom": n_zooms - 1}.get(case.phase, n_zooms)):
        rows = np.column_stack(
            [rng.normal(0.15 / (1 + i), np.linspace(0.05, 0.2, d), (200, d)), np.full(200, CONSTANT)]
        )
        released = {"moments": rows.T @ rows, "rates": np.array([40.0, 90.0]), "outcome": 40.0, "second": rows.T @ rows}
        posterior = model._zoomed(released, dict.fromkeys(released, 0.1), posterior)
    zooms = zooms_of(posterior)
    if zooms.n_zooms:
        assert np.ptp(zooms.coordinates.scale) > 0.1 * np.mean(zooms.coordinates.scale)
        assert np.abs(zooms.coordinates.shift).max() > 0.1 or not model.fit_intercept
    if hasattr(posterior, "search"):
        point = rng.normal(size=posterior.search.point.shape)
        posterior.search = replace(posterior.search, size=case.size, point=point)
    return posterior


def zooms_of(posterior):
    """Those of any regression."""
    return getattr(posterior, "search", getattr(posterior, "frame", posterior)).zooms


def last_phase(model) -> FitPhase:
    """The phase of the usual E-steps: of a case with a ``phase`` this one."""
    return phases_of(model, 24)[-1]


def in_phase(model, name=""):
    """The same model, whose fits have that phase only, "" for the last one, for laws in which all steps release the same
    blocks."""
    phases = model.phases

    def only(n_steps):
        of_name = [phase for phase in completed(model, phases(24), 24) if name in ("", phase.name)]
        return [replace(of_name[-1], n_steps=n_steps)]

    model.phases = only
    if hasattr(model, "_n_zooms") and name in ("", "scores"):
        model._n_zooms = lambda n_steps: 0  # scores take places of their own
    return model


def clipped_sum(case, model, plan, records, posterior, phase=None):
    """The engine's sum of step 1 as one vector of scaled, isometric coordinates (the Frobenius norm is isometric)."""
    phase = phase or last_phase(model)
    blocks = phase.blocks
    try:
        total = engine.clipped_sum(model, phase, as_data(records), posterior, plan, plan.randomness(0), 1)
    except Exception as error:
        raise AssertionError(f"an error that depends on a record: {type(error).__name__}: {error}") from error
    return np.concatenate([np.ravel(total[name]) / block.scale for name, block in blocks.items()])


def step_size(model, t, name):
    rho = last_phase(model).step_size(t)
    return rho[name] if isinstance(rho, dict) else rho


def as_vector(total, blocks):
    return np.concatenate([np.ravel(total[name]) for name in blocks])


# -- statistics -------------------------------------------------------------------------------------------------


def records_do_not_see_each_other(case):
    model, _, records, posterior = prepared(case, 12)
    blocks = last_phase(model).blocks
    together = last_phase(model).statistics_of(model, records, posterior)
    norms = together.norms(blocks)
    weights = np.random.default_rng(1).uniform(0.1, 1.0, 12)
    union = 0.0
    for i in range(12):
        alone = last_phase(model).statistics_of(model, records[[i]], posterior)
        norm = alone.norms(blocks)[0]
        share = as_vector(alone.weighted_sum(weights[[i]]), blocks)
        other = as_vector(together.weighted_sum(np.where(np.arange(12) == i, weights, 0.0)), blocks)
        np.testing.assert_allclose(other, share, rtol=1e-12, atol=1e-13, err_msg="a record is another one in company")
        np.testing.assert_allclose(norms[i], norm, rtol=1e-12, err_msg="a norm depends on the others")
        union = union + share
    np.testing.assert_allclose(as_vector(together.weighted_sum(weights), blocks), union, rtol=1e-11, atol=1e-12)
    order = np.random.default_rng(2).permutation(12)
    shuffled = last_phase(model).statistics_of(model, records[order], posterior)
    np.testing.assert_array_equal(shuffled.norms(blocks), norms[order])
    np.testing.assert_allclose(as_vector(shuffled.weighted_sum(weights[order]), blocks), union, rtol=1e-11, atol=1e-12)


def norms_are_joint_and_never_too_small(case):
    model, plan, records, posterior = prepared(case, 20)
    records = with_extremes(case, records)
    if is_searched(last_phase(model), posterior):  # at the middle of the coordinates tilts are largest
        middle = posterior.search.zooms.coordinates.shift[: model.n_features_in_]
        records = stacked(records, [np.append(middle, case.extreme[len(middle) :])])
    norms_of_records_hold(case, model, records, posterior)
    if not model.reads_persons:
        norms_of_runs_hold(case, model, plan, records[18:], posterior)  # two ordinary ones, and the extremes


def with_extremes(case, records):
    return stacked(records, [case.extreme, *(case.hostile[name] for name in ("large", "zero", "tiny"))])


def norms_of_records_hold(case, model, records, posterior, phase=None):
    phase = phase or last_phase(model)
    norms = phase.statistics_of(model, records, posterior).norms(phase.blocks)
    labels = (
        () if phase.statistics.startswith("_moments") else case.labels
    )  # zooms of a regression clip by the record's own
    for i in range(records.shape[0]):
        of_labels = [true_norms(model, phase, record, posterior) for record in _with_labels(records[[i]], labels)]
        true, stated = np.max(of_labels, axis=0)
        assert norms[i] >= true * (1.0 - 1e-13), "a norm is smaller than the record's statistics"
        factor = 1.0 if case.norm_factor is None else case.norm_factor(records[i])
        assert norms[i] <= stated * factor * (1.0 + 1e-5) + 1e-150, "a norm is far too large"
        squares_are_of_the_score(model, phase, records[[i]], posterior)


def norms_of_runs_hold(case, model, plan, records, posterior):
    """A person with three rows alike, whatever their label, adds at most C: a small one, so that the clip weight is below 1."""
    phase, plan = last_phase(model), replace(plan, clip_norm=1e-3 * case.clip_norm)
    for i in range(records.shape[0]):
        for rows in _with_labels(records[[i, i, i]], case.labels):
            statistics = phase.statistics_of(model, rows, posterior)
            norms = statistics.norms(phase.blocks)
            norm = statistics.run_norms(norms, phase.blocks, np.array([0, 3]))
            total = statistics.weighted_sum(np.repeat(plan.clip_weights(norm), 3) * (norms > 0.0))
            shares = [np.linalg.norm(total[name]) / block.scale for name, block in phase.blocks.items()]
            assert np.linalg.norm(shares) <= plan.clip_norm * (1.0 + 1e-6), "a norm of several rows is too small"


def true_norms(model, phase, record, posterior) -> tuple[float, float]:
    """Norm of one record's statistics, as the weight of the clip multiplies them, and with the bound of squared scores that
    ``vips/core/sums/regressions.py`` states."""
    statistics, blocks = phase.statistics_of(model, record, posterior), phase.blocks
    weight = model.plan_of_fit().clip_weights(statistics.norms(blocks))
    total = statistics.weighted_sum(weight)
    norms = {name: np.linalg.norm(total[name]) / (weight[0] * block.scale) for name, block in blocks.items()}
    true = np.linalg.norm(list(norms.values()))
    if is_searched(phase, posterior):
        clip_norm, scale = model.plan_of_fit().clip_norm, blocks["linear"].scale
        score = norms["linear"] * scale
        norms["squares"] = unit_of_squares(posterior) * score * min(score, clip_norm * scale) / blocks["squares"].scale
    return true, np.linalg.norm(list(norms.values()))


def unit_of_squares(posterior) -> float:
    """c: C, and no more than 2."""
    return min(posterior.search.size, 2.0)


def is_searched(phase, posterior) -> bool:
    """Whether the phase sums scores of a regression that searches, and their squares."""
    return getattr(posterior, "search", None) is not None and "squares" in phase.blocks


def squares_are_of_the_score(model, phase, record, posterior) -> None:
    """What the engine adds of them is c w² s², where it adds w s of the score."""
    if not is_searched(phase, posterior):
        return
    statistics = phase.statistics_of(model, record, posterior)
    weights = model.plan_of_fit().clip_weights(statistics.norms(phase.blocks))
    total = statistics.weighted_sum(weights)
    squares = unit_of_squares(posterior) * np.square(total["linear"])
    np.testing.assert_allclose(total["squares"], squares, rtol=1e-9, atol=1e-300, err_msg="not c w² s² of a score")


def _with_labels(record, labels):
    """The records, and the same rows with every label, and their exposures if there are any."""
    others = [record.y.copy() for _ in labels]
    for y, label in zip(others, labels, strict=True):
        y.reshape(len(y), -1)[:, 0] = label
    return [record, *(replace(record, y=y) for y in others)]


def defective_records_change_nothing_else(case):
    model, plan, records, posterior = prepared(case, 10)
    reference = clipped_sum(case, model, plan, records, posterior)
    for name, row in case.hostile.items():
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            total = clipped_sum(case, model, plan, stack(records, row), posterior)
        assert np.isfinite(total).all(), f"a record with {name} entries destroyed the sum"
        moved = np.linalg.norm(total - reference)
        assert moved <= plan.clip_norm * (1.0 + 1e-9), f"a record with {name} entries moved the sum by {moved}"
        if name in ("nan", "inf", "minus inf") and not case.has_missing:
            np.testing.assert_allclose(total, reference, rtol=1e-12, atol=1e-12)


def neighbours_stay_within_the_sensitivity(case):
    rng = np.random.default_rng(3)
    largest = 0.0
    for seed in range(2):
        model, plan, records, posterior = prepared(case, 8, seed)
        reference = clipped_sum(case, model, plan, records, posterior)
        rows = [*case.hostile.values(), case.extreme]
        rows += [case.extreme * rng.integers(0, 2, case.extreme.shape) for _ in range(4)]
        rows += [np.where(np.arange(len(case.extreme)) == j, case.extreme.T, 0.0).T for j in (0, 1)]
        places = [(row, (i + seed) % 2) for i, row in enumerate(rows)]
        added = [clipped_sum(case, model, plan, stack(records, row, first), posterior) for row, first in places]
        moved = [np.linalg.norm(total - reference) for total in added]
        largest = max(largest, *moved)
        assert max(moved) <= plan.clip_norm * (1.0 + 1e-9), "adding a record moved the sum by more than C"
        replaced = max(np.linalg.norm(a - b) for a in added for b in added)
        assert replaced <= 2.0 * plan.clip_norm * (1.0 + 1e-9), "replacing a record moved the sum by more than 2C"
        removed = np.linalg.norm(clipped_sum(case, model, plan, records[1:], posterior) - reference)
        assert removed <= plan.clip_norm * (1.0 + 1e-9), "removing a record moved the sum by more than C"
    if case.name != "second moments":  # there the symmetrised array has a smaller norm than the array itself
        least = case.reach * plan.clip_norm
        assert largest >= least, f"no pair of neighbours comes near C: {largest} of {plan.clip_norm}"


def hardened_sums_are_exact(case):
    """Sums are whole units of the lattice, equal in any order and any chunks, and a record moves them by at most Δ."""
    model, plan, records, posterior = prepared(case, 9, noise="discrete")
    blocks = last_phase(model).blocks
    lattice = plan.lattice(blocks)

    def sums(rows, chunk_size=1000):
        model.chunk_size = chunk_size
        by_block = engine.clipped_sum(model, last_phase(model), as_data(rows), posterior, plan, plan.randomness(0), 1)
        assert all(value.dtype == np.int64 for value in by_block.values()), "sums are not whole numbers"
        return by_block

    def total(rows, chunk_size=1000):
        by_block = sums(rows, chunk_size)
        return np.concatenate([_units(by_block[name], block) for name, block in blocks.items()])

    alone = total(records)
    for name, row in [("extreme", case.extreme), *case.hostile.items()]:
        together = total(stack(records, row))
        moved = np.linalg.norm((together - alone).astype(float)) * lattice.unit
        assert moved <= plan.clip_norm * SENSITIVITY_FACTOR, f"a record with {name} entries moved the sum by {moved}"
    exact = clipped_sum(case, model, replace(plan, noise="gaussian"), records, posterior)
    totals = sums(records)
    rounded = np.concatenate([np.ravel(lattice.values(totals[n], b)) / b.scale for n, b in blocks.items()])
    distance = np.linalg.norm(rounded - exact)
    # nine records, each rounded by at most C/2¹⁰; weights in single precision
    assert distance <= 9 * plan.clip_norm * (2.0**-10 + 1e-6), "the rounded sum is not the sum"

    *_, many, posterior = prepared(case, PIECE + 10, noise="discrete")  # chunks that are filled up hold a whole piece
    many = stacked(many, case.hostile.values())
    together = total(many)
    np.testing.assert_array_equal(total(many, 100), together, err_msg="a sum depends on the chunks")
    order = np.random.default_rng(4).permutation(many.shape[0])
    np.testing.assert_array_equal(total(many[order], 100), together, err_msg="a sum depends on the records' order")


def _units(units, block):
    """Coordinates of a block in whole units; for a symmetric block, the upper triangle."""
    return np.ravel(units[..., *np.triu_indices(block.shape[-1])] if block.symmetric else units)


# -- the loop ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class FrozenPlan(PrivacyPlan):
    """A plan with noisy totals drawn beforehand, so that nothing after them may depend on the data."""

    totals: list = field(default_factory=list)
    step: list = field(default_factory=lambda: [0])

    def add_noise(self, total, blocks, randomness, step):
        assert {name: np.shape(value) for name, value in total.items()} == {
            name: block.shape for name, block in blocks.items()
        }
        self.step[0] += 1
        return {name: self.totals[self.step[0] - 1][name].copy() for name in blocks}


def _n_steps(case):
    """Steps of a fit that has all its phases: two zooms of a regression, and others after them; fewer where steps are alike."""
    if _has_zooms(case):
        return 6
    return 3 if type(case.make_model()).phases is ConjugateExponentialModel.phases else 4


def _has_zooms(case):
    return hasattr(case.make_model(), "_n_zooms")


def replay(case, records):
    """Everything that a fit shows when its noisy totals are frozen."""
    n_steps = _n_steps(case)
    rng = np.random.default_rng(11)
    # with more noise limits of a linear regression are at their ends, whatever its totals are
    noise_multiplier = 0.03 if _has_zooms(case) else 1.0
    plan = FrozenPlan(
        noise_multiplier=noise_multiplier,
        sampling_rate=0.5,
        n_steps=n_steps,
        clip_norm=case.clip_norm,
        report_delta=1e-5,
    )
    probe, _, _, _ = prepared(case, 3)
    probe.privacy = plan
    for _ in range(n_steps):
        drawn = {name: rng.normal(20.0, 30.0, block.shape) for name, block in probe.blocks().items()}
        if "outcome" in drawn:  # such that the share of a few records is none at which it ends
            drawn["outcome"] *= 0.1
        plan.totals.append(drawn)
    path = []

    def recording(model):
        start = model.start

        def noted_start(rng):
            average, posterior = start(rng)
            path.append({k: v.tobytes() for k, v in average.items()})
            return average, posterior

        def noted(update):
            return lambda average, noise_std, previous: (
                path.append(({k: v.tobytes() for k, v in average.items()}, as_lists(noise_std)))
                or update(average, noise_std, previous)
            )

        def noted_size(phase):
            return lambda s: path.append(("step", phase.name, s, phase.step_size(s))) or phase.step_size(s)

        model.start = noted_start
        return with_updates(model, noted, noted_size)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model = fit(recording(case.make_model(privacy=plan, random_state=0)), records)
        except Exception as error:
            raise AssertionError(f"an error that depends on a record: {type(error).__name__}: {error}") from error
    learnt = {name: value for name, value in vars(model).items() if name.endswith("_")}
    learnt = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in learnt.items()}
    posterior = learnt.pop("last_posterior_")
    arrays = posterior if isinstance(posterior, dict) else posterior.to_arrays()
    learnt["computed for the E-step"] = sorted(getattr(posterior, "__dict__", {}))
    report, noisy = learnt.pop("privacy_").to_dict(), learnt.pop("noisy_totals_")
    learnt["noisy_totals_"] = {k: v.tobytes() for k, v in noisy.average.items()}, as_lists(noisy.noise_std)
    return path, {k: v.tobytes() for k, v in arrays.items()}, report, learnt, [str(w.message) for w in caught]


def everything_else_is_public(case):
    records = case.make_records(30, np.random.default_rng(5))
    if sp.issparse(records):
        records = records.astype(float)  # as neighbours are: dtypes are public
    reference = replay(case, records)
    hostile = list(case.hostile.values())
    for neighbour in (records[:29], records[:1], records[:0], *(stacked(records, hostile[i::3]) for i in range(3))):
        assert replay(case, neighbour) == reference, "something besides the noisy totals depends on a record"
    assert sum(entry[0] == "step" for entry in reference[0][1:]) == _n_steps(case), "the steps are not the plan's"


class Recorder:
    """Keeps every average from which a fit computes a posterior, and that posterior. Averages stay in their coordinates.

    With ``rho``, all step sizes are that number.
    """

    def __init__(self, model, rho=None):
        self.averages, self.noise_std, self.posteriors = [], [], []
        start = model.start

        def record(average, noise_std, posterior):
            self.averages.append({name: np.array(value) for name, value in average.items()})
            self.noise_std.append(dict(noise_std))
            self.posteriors.append(posterior)

        def recorded(update):
            def recording(average, noise_std, previous):
                before = {name: np.array(value) for name, value in average.items()}
                posterior = update(average, noise_std, previous)
                record(before, noise_std, posterior)
                return posterior

            return recording

        def recorded_start(rng):
            average, posterior = start(rng)
            record(average, dict.fromkeys(average, 0.0), posterior)
            return average, posterior

        model.start = recorded_start
        with_updates(model, recorded, lambda phase: phase.step_size if rho is None else lambda s: rho)
        model.transport = lambda average, noise_std, previous, posterior: (average, noise_std)
        self.model = model


def pure_noise(case, n_fits=40, seed=0, plan=None, model=None):
    """Fits without records: averages are initial value plus noise. Last averages, their stated deviation, all averages."""
    plan = plan or replace(SAMPLED, clip_norm=case.clip_norm, noise_multiplier=2.0)
    empty = case.make_records(4, np.random.default_rng(0))[:0]
    ends, stds, paths = [], None, []
    for _ in range(n_fits):
        fitted = clone(model) if model is not None else case.make_model(privacy=plan, random_state=seed)
        recorder = Recorder(in_phase(fitted, case.phase))
        fit(recorder.model, empty)
        paths.append(recorder.averages)
        ends.append(recorder.averages[-1])
        stds = recorder.noise_std[-1]
    return ends, stds, paths


def noise_has_the_stated_size(case):
    plan = replace(SAMPLED, clip_norm=case.clip_norm, noise_multiplier=2.0)
    model, *_ = prepared(case, 2, **AS_SAMPLED)
    # at least 200 values of each block, and of the diagonal and the rest of a symmetric one
    smallest = min(b.shape[-1] if b.symmetric else int(np.prod(b.shape)) for b in last_phase(model).blocks.values())
    ends, stds, _ = pure_noise(case, n_fits=max(15, -(-200 // smallest)))
    for name, block in last_phase(model).blocks.items():
        variance = 0.0
        for t in range(1, plan.n_steps + 1):
            rho = step_size(model, t, name)
            variance = (1.0 - rho) ** 2 * variance + rho**2 * (2.0 * case.clip_norm / plan.sampling_rate) ** 2
        values = np.array([end[name] for end in ends])
        expected = np.sqrt(variance) * block.scale
        np.testing.assert_allclose(stds[name], expected, rtol=1e-12)
        centred = values - values.mean(axis=0)
        if block.symmetric:
            np.testing.assert_array_equal(values, np.swapaxes(values, -1, -2))
            upper = np.triu_indices(block.shape[-1], 1)
            _check_std(centred[..., *upper], expected / np.sqrt(2.0))
            _check_std(np.diagonal(centred, axis1=-2, axis2=-1), expected)
        else:
            _check_std(centred, expected)


def _check_std(centred, expected):
    """The empirical deviation is within five standard errors; 200 degrees of freedom suffice to notice √2."""
    degrees = (len(centred) - 1) * max(1, int(np.prod(centred.shape[1:])))
    ratio = np.sqrt(np.sum(centred**2) / degrees) / expected
    assert abs(ratio - 1.0) < 5.0 / np.sqrt(2.0 * degrees), f"noise is {ratio:.3f} of what the plan states"


def noise_is_gaussian_whatever_the_total(case):
    """Noise is normal, unbounded, independent between coordinates, blocks and steps, and the same for every total."""
    from scipy import stats

    model, plan, *_ = prepared(case, 2, noise_multiplier=1.5)
    blocks = last_phase(model).blocks
    rng = np.random.default_rng(12)
    randomness = plan.randomness(0)
    draws = []
    size = sum(int(np.prod(block.shape)) for block in blocks.values())
    for _ in range(max(60, 4000 // size)):
        np.random.seed(0)  # noqa: NPY002  (noise from NumPy's global generator would repeat)
        total = {name: rng.normal(3.0, 50.0, block.shape) for name, block in blocks.items()}
        total = {n: value + np.swapaxes(value, -1, -2) if blocks[n].symmetric else value for n, value in total.items()}
        noisy = plan.add_noise(total, blocks, randomness, 1)
        draws.append(
            np.concatenate([_coordinates(noisy[n] - total[n], block) / block.scale for n, block in blocks.items()])
        )
    draws = np.array(draws) / plan.noise_std()
    assert stats.kstest(draws.ravel(), "norm").pvalue > 1e-6, "the noise is not Gaussian"
    beyond = np.mean(np.abs(draws) > 2.5)
    expected = 2 * stats.norm.sf(2.5)
    assert abs(beyond - expected) < 6 * np.sqrt(expected / draws.size), "the tails are not a Gaussian's"
    assert abs(np.mean(draws[1:] * draws[:-1])) < 6 / np.sqrt(draws[1:].size), "noise is shared between steps"
    cells = draws[:, rng.permutation(draws.shape[1])[:300]]
    cells = cells / np.linalg.norm(cells, axis=0)  # then a correlation² of independent coordinates has mean 1/n exactly
    correlation = cells.T @ cells
    np.fill_diagonal(correlation, 0.0)
    assert np.abs(correlation).max() < 0.85, "noise is shared between coordinates"
    off_diagonal = correlation.size - len(correlation)
    assert np.sum(correlation**2) * len(cells) < off_diagonal + 8 * np.sqrt(2 * off_diagonal), (
        "coordinates are dependent"
    )


def _coordinates(noise, block):
    """Isometric coordinates: for a symmetric block, the diagonal and √2 times the upper triangle."""
    if not block.symmetric:
        return np.ravel(noise)
    upper = np.triu_indices(block.shape[-1], 1)
    parts = np.diagonal(noise, axis1=-2, axis2=-1), np.sqrt(2.0) * noise[..., *upper]
    return np.concatenate([np.ravel(part) for part in parts])


def noise_is_never_shared(case):
    """Steps of a fit, fits of one model, fits of clones and fits with one seed share no noise."""
    n_fits = (
        20  # of five coordinates: what is shared gives 1, and 0.7 occurs by chance less than once in 10⁹ comparisons
    )
    model = case.make_model(privacy=replace(SAMPLED, clip_norm=case.clip_norm, noise_multiplier=2.0), random_state=7)
    for source in (None, model):
        _, _, paths = pure_noise(case, n_fits=n_fits, seed=7, model=source)
        blocks = last_phase(prepared(case, 2)[0]).blocks
        increments = np.array([_noise_of_steps(path, blocks, case) for path in paths])  # (fits, steps, coordinates)
        assert len(np.unique(increments[:, :, 0])) == n_fits * SAMPLED.n_steps, "a noise draw was used twice"
        scaled = increments / increments.std()
        n = scaled.shape[0] * scaled.shape[2]
        for first in range(SAMPLED.n_steps):
            for second in range(first):
                shared = np.mean(scaled[:, first] * scaled[:, second])
                assert abs(shared) < 7.0 / np.sqrt(n), "steps share noise"
        shared = np.mean(scaled[1:] * scaled[:-1])
        assert abs(shared) < 7.0 / np.sqrt(n), "fits share noise"


def _noise_of_steps(path, blocks, case):
    """The noise of each step, computed from successive averages of a fit without records."""
    model, *_ = prepared(case, 2, **AS_SAMPLED)
    steps = []
    for t in range(1, len(path)):
        rho = {name: step_size(model, t, name) for name in blocks}
        step = {name: (path[t][name] - (1.0 - rho[name]) * path[t - 1][name]) / rho[name] for name in blocks}
        steps.append(as_vector({name: step[name] / block.scale for name, block in blocks.items()}, blocks))
    return steps


def stack_all(first, second):
    if hasattr(first, "y"):
        return replace(first, X=stack_all(first.X, second.X), y=np.concatenate([first.y, second.y]))
    if isinstance(first, Sequences):
        return Sequences.joined([first, second])
    return sp.csr_array(sp.vstack([first, second], format="csr")) if sp.issparse(first) else np.vstack([first, second])


def one_event_per_step(case):
    """A fit is accounted as T Gaussian mechanisms with σ on Poisson samples, whatever the number of blocks."""
    plan = replace(SAMPLED, clip_norm=case.clip_norm)
    model = fit(case.make_model(privacy=plan, random_state=0), case.make_records(20, np.random.default_rng(0)))
    event, epsilon = _three_steps()
    assert model.privacy_.event() == event, "not one event per step"
    # an upper bound; the other one is computed on another grid
    assert epsilon * (1.0 - 1e-6) <= model.privacy_.epsilon(1e-5) <= epsilon * (1.0 + 1e-4)


@cache
def _three_steps():
    """The event of ``SAMPLED``, and its ε at 1e-5, by dp_accounting alone."""
    import dp_accounting

    step = dp_accounting.PoissonSampledDpEvent(0.4, dp_accounting.GaussianDpEvent(1.0))
    event = dp_accounting.SelfComposedDpEvent(step, 3)
    return event, dp_accounting.pld.PLDAccountant().compose(event).get_epsilon(1e-5)


def chunks_change_nothing(case):
    records = case.make_records(3 * PIECE, np.random.default_rng(9))  # about 290 in a sample
    ends = []
    for chunk_size in (100, 1000):
        plan = replace(SAMPLED, clip_norm=case.clip_norm, reproducible_noise=True)
        model = case.make_model(privacy=plan, random_state=3)
        model.chunk_size = chunk_size
        recorder = Recorder(model)
        fit(recorder.model, records)
        ends.append(as_vector(recorder.averages[-1], recorder.averages[-1]))
    for end in ends[1:]:
        np.testing.assert_allclose(end, ends[0], rtol=1e-5, atol=1e-4, err_msg="a total depends on the chunks")


ALL = [
    records_do_not_see_each_other,
    norms_are_joint_and_never_too_small,
    defective_records_change_nothing_else,
    neighbours_stay_within_the_sensitivity,
    hardened_sums_are_exact,
    everything_else_is_public,
    noise_has_the_stated_size,
    noise_is_gaussian_whatever_the_total,
    noise_is_never_shared,
    one_event_per_step,
    chunks_change_nothing,
]

"""Do a model and its plan keep their promises? The checks here can find a leak; they cannot prove that there is none.

records ─▶ neighbouring data sets ─▶ clipped sums: |S(D) - S(D')| ≤ C          (search, chunks)
        ─▶ fits with fixed noisy totals: nothing else may differ               (replay)
plan    ─▶ noise and samples: size, law, fresh every time                      (noise)
        ─▶ canaries: a lower bound on ε from real runs, against the claim      (canaries)
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from sklearn.base import clone

from vips.core.budget import PrivacyBudget
from vips.core.contract import stated_plan
from vips.core.ledger.ledger import current_ledger
from vips.core.mechanism.random_state import as_generator
from vips.core.phases import phases_of, step_of
from vips.core.plan import PrivacyPlan
from vips.tools.auditing import noise, replay
from vips.tools.auditing.canaries import canary_bound, canary_finding, log_likelihood_ratio, lower_bound
from vips.tools.auditing.records import ROWS_OF_PERSON, Table, hostile_records
from vips.tools.auditing.report import AuditReport, Finding
from vips.tools.auditing.search import ClippedSum, Search, lattice_findings, sum_findings

__all__ = ["AuditReport", "Finding", "audit"]

# A model without fault fails by chance with at most this probability, shared among all statistical checks.
FALSE_ALARM, N_CHECKS = 1e-6, 40
LEVEL = FALSE_ALARM / N_CHECKS
LARGEST_TABLE = 200
REPLAYED = 15
TRIALS_PER_DRAW = 5  # noise on a model's own sums is slower to draw


def audit(
    model,
    X,
    y=None,
    *,
    groups: object = None,
    sample_weight: object = None,
    n_runs: int = 100_000,
    random_state: object = None,
) -> AuditReport:
    """Look for ways in which a private fit of ``model`` would break its guarantee.

    An audit makes neighbouring data sets from ``X`` and from hostile records. It compares the model's clipped sums, whole
    fits, noise and samples with what the plan states. Canaries give a lower bound on ε, which must not exceed the plan's
    claim. An audit looks at records, so that its report is **not private**: use public or synthetic records of the right
    shape.

    Parameters
    ----------
    model : ConjugateExponentialModel
        With a private plan as ``privacy``. It is cloned, never changed.
    X : array or CSR matrix of shape (n_records, n_features), or Sequences; for SpatialCounts areas, as its ``fit`` takes them
        At least two records; at most 200 are used. Integers are converted to floats, unless the model refuses floats.
    y : array of shape (n_records, ...), optional
    groups : array, series or list, optional
        Ids of persons, as ``fit`` takes them: neighbouring data sets then differ by all rows of one id.
    sample_weight : array or series of shape (n_records,), optional
        Weights, as ``fit`` takes them, for a plan with ``max_weight``: hostile records have weights above it, and some none.
    n_runs : int
        Trials of the plan's mechanism with and without a canary. 0 leaves out all statistical checks.
    random_state : int, Generator, RandomState or None
        Seeds the search for records. Samples and noise come from the operating system, as in a fit.

    Returns
    -------
    AuditReport
        One finding for each check; ``passed`` if none failed.

    Raises
    ------
    ValueError
        If the model has no private plan, its noise is reproducible, or a ledger is open (an audit makes many fits).

    Guarantees
    ----------
    - A model and plan that keep their promises, and whose output does not vary by chance, fail with probability at most 1e-6.
    - A lower bound on ε above the claim refutes the claim with that confidence. If trials are not independent, as the claim
      says, the claim is wrong anyway.
    - A passed audit proves nothing: it looked at some records, at some posteriors, and at one implementation.
      docs/own_model.md lists what it does not look at.

    Examples
    --------
    >>> from vips import LatentDirichletAllocation, PrivacyPlan, audit
    >>> from vips.datasets import make_lda_corpus
    >>> plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=0.5, n_steps=2)
    >>> model = LatentDirichletAllocation(n_components=3, vocabulary=20, privacy=plan)
    >>> counts = make_lda_corpus(50, n_topics=3, n_words=20, document_length=30, random_state=0).counts
    >>> audit(model, counts, n_runs=1000, random_state=0).passed
    True
    """
    plan = model.privacy
    if isinstance(plan, PrivacyBudget):
        model = clone(model).set_params(privacy=stated_plan(model))
        plan = model.privacy
    if not isinstance(plan, PrivacyPlan) or not plan.is_private:
        raise ValueError("There is nothing to audit without noise: give the model a PrivacyPlan as `privacy`.")
    if plan.reproducible_noise:
        raise ValueError(
            "With reproducible_noise=True there is no guarantee to audit: whoever knows the seed knows the noise."
        )
    if current_ledger(plan.sent_from) is not None:
        raise ValueError(
            "A ledger is open: an audit makes many fits, which should not be charged to it. Close it first."
        )
    if n_runs != 0 and n_runs < 1000:
        raise ValueError(f"`n_runs` must be 0, or at least 1000 to say anything, got {n_runs!r}.")
    table = Table.of(model.as_numbers(X), y, groups, sample_weight)
    with replay.two_processes() as processes:
        return _Audit.of(model, table, as_generator(random_state)).report(processes, n_runs)


@dataclass
class _Audit:
    """One audit: the model, also as it was before the first fit, its plan with a clip norm, records to start from."""

    model: object
    unused: bytes
    plan: PrivacyPlan
    table: Table
    rng: np.random.Generator

    @classmethod
    def of(cls, model, table: Table, rng: np.random.Generator) -> _Audit:
        table = table.take(np.sort(rng.permutation(len(table))[:LARGEST_TABLE]))
        unused = replay.pickled(model)
        for given in (table.as_float(), table):  # perhaps the model takes integers only
            audit = cls(model, unused, model.privacy, given, rng)
            try:
                fitted, _ = audit.fit()
            except Exception as error:
                failed = error
            else:
                audit.plan = replace(model.privacy, clip_norm=fitted.privacy_.plan.clip_norm)
                return audit
        raise ValueError(f"{type(model).__name__} cannot be fitted to X. {type(failed).__name__}: {failed}") from failed

    def report(self, processes: Sequence[replay.Process], n_runs: int) -> AuditReport:
        search, findings = self.sums()
        findings += [*self.replays(processes), noise.event_finding(self.plan)]
        if n_runs:
            findings.append(noise.sample_finding(self.plan, LEVEL))
            findings.append(noise.fresh_finding(self.model, self.plan, self.table.take(slice(8)), LEVEL))
            findings += [*self.one_step(search, n_runs), *self.canaries(n_runs)]
        return AuditReport(type(self.model).__name__, self.plan, tuple(findings))

    def frozen(self, kind: str = "noisy") -> replay.FrozenPlan:
        return replay.frozen(self.plan, n_steps=min(self.plan.n_steps, 3), kind=kind)

    def fit(self, kind: str = "noisy") -> tuple[object, list]:
        """A fit with fixed totals: the fitted model, and its E-steps, the first and the last one after the fit."""
        model = replay.unfitted(self.model, self.frozen(kind))
        posteriors = replay.fit(model, self.table)
        phases = phases_of(model, len(posteriors) - 1)
        of_steps = [step_of(phases, t)[0] for t in range(1, len(posteriors))]
        return model, list(zip([*of_steps, phases[-1]], posteriors, strict=True))

    def sums(self) -> tuple[Search, list[Finding]]:
        """The search for the plan's kind of noise, and the findings of both searches."""
        everyone = {"sampling": "full", "sampling_rate": 1.0, "n_steps": 1}
        plan = replace(self.plan, noise="gaussian", **everyone)
        plain, exact = Search("gaussian"), Search("discrete")
        ends = []
        for kind in replay.KINDS:
            # an error that the totals alone decide; the first kind raised none before
            with contextlib.suppress(Exception):
                fitted, e_steps = self.fit(kind)
                ends += [e_steps[0], e_steps[-1]] if kind == "noisy" else [e_steps[-1]]
        for e_step in ends:
            plain.run(ClippedSum(fitted, plan, *e_step), self.table, self.rng)
        plain.compare_large_chunk(ClippedSum(fitted, plan, *ends[1]), self.table, self.rng)
        used = self.plan.noise == "discrete"
        try:
            plan = replace(plan, noise="discrete")
            for phase, _ in ends:
                plan.lattice(phase.blocks)
        except ValueError:  # too much noise, or too many coordinates, for a lattice
            return plain, sum_findings(plain)
        for e_step in ends[1::2] if used else ends[-1:]:
            exact.run(ClippedSum(fitted, plan, *e_step), self.table, self.rng)
        if used:
            exact.compare_large_chunk(ClippedSum(fitted, plan, *ends[1]), self.table, self.rng)
        return exact if used else plain, sum_findings(plain) + lattice_findings(exact, used)

    def replays(self, processes: Sequence[replay.Process]) -> list[Finding]:
        return replay.replay_findings(processes, self.unused, self.frozen(), self.table, self.neighbours())

    def neighbours(self) -> dict[str, Table]:
        table = self.table
        hostile = list(hostile_records(table, self.rng).items())
        hostile = hostile[:: max(1, len(hostile) // REPLAYED)]
        neighbours: dict[str, Table] = {}
        for i, (name, record) in enumerate(hostile):
            if i % 2 and self.plan.relation == "add_or_remove":
                neighbours[f"{name}, added"] = table.joined(record)
            else:
                neighbours[f"{name}, replacing record 0"] = record.joined(table.take(slice(1, None)))
        if self.plan.relation == "add_or_remove":
            neighbours["a record removed"] = table.take(slice(-1))
            neighbours["one record"], neighbours["no record"] = table.take([0]), table.take(slice(0))
        return neighbours

    def one_step(self, search: Search, n_runs: int) -> list[Finding]:
        """Noise on the model's own sums, and how well it hides the worst record that was found."""
        replaced = self.plan.relation == "replace_one"
        pair = search.worst_replaced if replaced else search.worst_added
        checked = "the model's clipped sums of the worst pair of neighbours, with noise"
        if pair is None or not np.isfinite(pair.moved):
            measured = "the sums did not differ" if pair is None else "the sums differ without bound"
            return [Finding("one step of the model", checked, measured, "a finite difference", None)]
        draws = noise.draw_noise(pair, n_runs // TRIALS_PER_DRAW, self.rng)
        plan = pair.clipped_sum.plan
        ratios = log_likelihood_ratio(draws.scores[:, None] - replaced, plan)  # replaced: 0 and 2 become -1 and 1
        bound = lower_bound(ratios, draws.in_world_a, plan, 1.0 - LEVEL)
        advice = "one step releases more than is accounted for: see sensitivity and noise."
        return [
            *noise.noise_findings(draws, noise.noise_of_phases(self.fit()[0], self.plan), LEVEL),
            canary_finding("one step of the model", checked, bound, advice),
        ]

    def canaries(self, n_runs: int) -> list[Finding]:
        """The plan's mechanism, without the model."""
        plan, n_rows, persons, findings = self.plan, 1, "", []
        if self.table.ids is not None:
            n_rows = min(ROWS_OF_PERSON, plan.max_rows_per_group or ROWS_OF_PERSON)
            persons = f"persons of {n_rows} rows, "
        advice = "the engine releases more than the plan claims: noise, clip or sampling is not what is accounted for."
        for n_steps in sorted({1, plan.n_steps}):
            name = "canary, one step" if n_steps == 1 else "canary, all steps"
            checked = f"{persons}records of norm C or more along one direction, {n_steps} steps of the engine"
            bound = canary_bound(plan.with_n_steps(n_steps), n_runs, self.rng, 1.0 - LEVEL, n_rows=n_rows)
            findings.append(canary_finding(name, checked, bound, advice))
        return findings

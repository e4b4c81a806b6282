"""Plans and models to audit."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module

import numpy as np

from tests.laws.cases import arguments
from vips import PrivacyPlan, audit
from vips.tools.auditing import replay

SAMPLED = PrivacyPlan(noise_multiplier=1.0, sampling_rate=0.5, n_steps=2)
FULL = PrivacyPlan(noise_multiplier=1.0, sampling="full", n_steps=2)
HARDENED = replace(FULL, noise="discrete")
CONFIDENCE = 1.0 - 1e-6


def of_canaries(noise_multiplier, n_steps, rate=None, **settings):
    """A plan of full batches, or of samples at this rate."""
    sampling = {"sampling": "full"} if rate is None else {"sampling_rate": rate}
    return PrivacyPlan(noise_multiplier=noise_multiplier, n_steps=n_steps, clip_norm=2.0, **sampling, **settings)


CANARIES = [
    of_canaries(1.0, 1), of_canaries(3.0, 8), of_canaries(1.0, 1, 0.5), of_canaries(1.0, 10, 0.2),
    of_canaries(2.0, 1, relation="replace_one"), of_canaries(6.0, 8, relation="replace_one"),
]  # fmt: skip

_Audit = import_module("vips.tools.auditing.audit")._Audit  # `vips.tools.auditing.audit` may be the function


def look_only_for(findings, patch):
    """Audits leave out the parts that find other faults."""
    if not any(finding.startswith("replay") or finding == "memory" for finding in findings):
        patch.setattr(_Audit, "replays", lambda self, processes: [])
        patch.setattr(replay, "two_processes", lambda: nullcontext([]))
    if not any(finding.startswith(("canary", "one step")) for finding in findings):
        patch.setattr(_Audit, "canaries", lambda self, n_runs: [])
    if findings <= {"noise: fresh", "samples", "event"}:
        patch.setattr(_Audit, "one_step", lambda self, search, n_runs: [])
    if all(finding.startswith(("replay", "noise: fresh", "samples", "event")) for finding in findings):
        patch.setattr(_Audit, "sums", lambda self: (None, []))


def break_everywhere(mutant, patch):
    """Break the code in this process, and in those where an audit replays fits."""
    mutant(patch)
    broken = f"import pytest; from {mutant.__module__} import {mutant.__name__} as mutant; mutant(pytest.MonkeyPatch())"
    patch.setattr(replay, "CODE", f"{broken}; {replay.CODE}")


def audited(case, plan=SAMPLED, n_runs=2000, *, persons=False, max_weight=None):
    """The audit of a case of the laws, with 30 records; or with 40 rows, of about 12 persons, or with weights."""
    rng, special = np.random.default_rng(0), persons or max_weight is not None
    plan = replace(plan, clip_norm=case.clip_norm, max_rows_per_group=7 if persons else None, max_weight=max_weight)
    records, beside = arguments(case.make_records(40 if special else 30, rng)), {}
    if persons:
        beside["groups"] = rng.integers(0, 12, 40)
    if max_weight is not None:
        beside["sample_weight"] = rng.uniform(0.0, 1.5 * max_weight, 40)
    return audit(case.make_model(privacy=plan), *records, **beside, n_runs=n_runs, random_state=0)

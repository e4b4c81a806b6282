"""vips: private variational Bayes for conjugate-exponential models."""

from __future__ import annotations

import importlib
import sys
import types
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # for type checkers and editors; at run time a name is imported when it is first used
    from vips._rowwise import rowwise_product
    from vips.compare import Comparison, compare
    from vips.compare.curve import UtilityCurve, privacy_utility_curve
    from vips.model import Block, ConjugateExponentialModel, DenseStatistics, Records, RecordStatistics
    from vips.models.count_regression import BayesianBinomialRegression, BayesianNegativeBinomialRegression
    from vips.models.dirichlet_multinomial import DirichletMultinomial
    from vips.models.lda import LatentDirichletAllocation
    from vips.models.logistic_regression import BayesianLogisticRegression
    from vips.models.sigmoid_belief_network import SigmoidBeliefNetwork
    from vips.privacy import PrivacyPlan, PrivacyReport, PrivacyWarning
    from vips.privacy.audit import AuditReport, audit
    from vips.privacy.ledger import LedgerError, PrivacyBudgetError, PrivacyLedger
    from vips.saving import load
    from vips.step_size import PolynomialAveraging, RobbinsMonro

__version__ = "0.1.0"

__all__ = [
    "AuditReport",
    "BayesianBinomialRegression",
    "BayesianLogisticRegression",
    "BayesianNegativeBinomialRegression",
    "Block",
    "Comparison",
    "ConjugateExponentialModel",
    "DenseStatistics",
    "DirichletMultinomial",
    "LatentDirichletAllocation",
    "LedgerError",
    "PolynomialAveraging",
    "PrivacyBudgetError",
    "PrivacyLedger",
    "PrivacyPlan",
    "PrivacyReport",
    "PrivacyWarning",
    "RecordStatistics",
    "Records",
    "RobbinsMonro",
    "SigmoidBeliefNetwork",
    "UtilityCurve",
    "audit",
    "compare",
    "load",
    "privacy_utility_curve",
    "rowwise_product",
]

_HOMES = {
    "vips._rowwise": ("rowwise_product",),
    "vips.compare": ("Comparison", "compare"),
    "vips.compare.curve": ("UtilityCurve", "privacy_utility_curve"),
    "vips.model": ("Block", "ConjugateExponentialModel", "DenseStatistics", "RecordStatistics", "Records"),
    "vips.models.count_regression": ("BayesianBinomialRegression", "BayesianNegativeBinomialRegression"),
    "vips.models.dirichlet_multinomial": ("DirichletMultinomial",),
    "vips.models.lda": ("LatentDirichletAllocation",),
    "vips.models.logistic_regression": ("BayesianLogisticRegression",),
    "vips.models.sigmoid_belief_network": ("SigmoidBeliefNetwork",),
    "vips.privacy": ("PrivacyPlan", "PrivacyReport", "PrivacyWarning"),
    "vips.privacy.audit": ("AuditReport", "audit"),
    "vips.privacy.ledger": ("LedgerError", "PrivacyBudgetError", "PrivacyLedger"),
    "vips.saving": ("load",),
    "vips.step_size": ("PolynomialAveraging", "RobbinsMonro"),
}
_PACKAGES = ("data", "datasets", "expfam", "models", "preprocessing", "privacy", "reference")
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


class _Package(types.ModuleType):
    """``vips.compare`` is the function, also once the package of that name has been imported, which would take its place."""

    @property
    def compare(self):
        return importlib.import_module("vips.compare").compare

    @compare.setter
    def compare(self, module) -> None:
        pass


def __getattr__(name: str):
    if name in _PACKAGES:
        return importlib.import_module(f"vips.{name}")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'vips' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOME_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PACKAGES})


sys.modules[__name__].__class__ = _Package

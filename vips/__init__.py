"""vips: private variational Bayes for conjugate-exponential models."""

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
]

from . import data, datasets, expfam, models, preprocessing, privacy, reference
from .classification.classifier import PrivateClassifier
from .core.exact.rowwise import rowwise_product
from .core.ledger import PrivacyLedger
from .core.phases import FitPhase
from .core.step_size import PolynomialAveraging, RobbinsMonro
from .core.sums import Block, DenseStatistics, RecordStatistics
from .counting import NoisyCount, count_records
from .data import Records
from .exceptions import (
    CheckpointError,
    InvalidRecordError,
    LedgerError,
    PartitionError,
    PrivacyBudgetError,
    PrivacyWarning,
    SourceError,
    StreamError,
)
from .model import ConjugateExponentialModel
from .models import (
    BayesianBinomialRegression,
    BayesianGaussianMixture,
    BayesianLinearRegression,
    BayesianLogisticRegression,
    BayesianNegativeBinomialRegression,
    CategoricalHMM,
    DirichletMultinomial,
    FactorAnalysis,
    FactorialHMM,
    GaussianHMM,
    LatentClassAnalysis,
    LatentDirichletAllocation,
    LinearDynamicalSystem,
    MixedLatentClassAnalysis,
    MixedLogisticRegression,
    MixedNegativeBinomialRegression,
    PoissonHMM,
    PrivateTable,
    ProbabilisticPCA,
    SigmoidBeliefNetwork,
    SpatialCounts,
    SwitchingLinearDynamicalSystem,
)
from .models.components.matching.how_many import HowMany, how_many
from .parts import Part, Score
from .preprocessing import PrivateTopics, inspect
from .privacy import PrivacyBudget, PrivacyPlan, PrivacyReport, StreamPlan
from .saving import load
from .tools.auditing.attack import Attack
from .tools.auditing.audit import audit
from .tools.auditing.report import AuditReport
from .tools.comparison.compare import compare
from .tools.comparison.comparison import Comparison
from .tools.comparison.curve import UtilityCurve, privacy_utility_curve
from .tools.evaluation.evaluate import evaluate
from .tools.evaluation.evaluation import Evaluation
from .tools.planning import Recommendation, Rehearsal, Study, plan_for, plan_study, rehearse

__version__: str

__all__ = [
    "Attack",
    "AuditReport",
    "BayesianBinomialRegression",
    "BayesianGaussianMixture",
    "BayesianLinearRegression",
    "BayesianLogisticRegression",
    "BayesianNegativeBinomialRegression",
    "Block",
    "CategoricalHMM",
    "CheckpointError",
    "Comparison",
    "ConjugateExponentialModel",
    "DenseStatistics",
    "DirichletMultinomial",
    "Evaluation",
    "FactorAnalysis",
    "FactorialHMM",
    "FitPhase",
    "GaussianHMM",
    "HowMany",
    "InvalidRecordError",
    "LatentClassAnalysis",
    "LatentDirichletAllocation",
    "LedgerError",
    "LinearDynamicalSystem",
    "MixedLatentClassAnalysis",
    "MixedLogisticRegression",
    "MixedNegativeBinomialRegression",
    "NoisyCount",
    "Part",
    "PartitionError",
    "PoissonHMM",
    "PolynomialAveraging",
    "PrivacyBudget",
    "PrivacyBudgetError",
    "PrivacyLedger",
    "PrivacyPlan",
    "PrivacyReport",
    "PrivacyWarning",
    "PrivateClassifier",
    "PrivateTable",
    "PrivateTopics",
    "ProbabilisticPCA",
    "Recommendation",
    "RecordStatistics",
    "Records",
    "Rehearsal",
    "RobbinsMonro",
    "Score",
    "SigmoidBeliefNetwork",
    "SourceError",
    "SpatialCounts",
    "StreamError",
    "StreamPlan",
    "Study",
    "SwitchingLinearDynamicalSystem",
    "UtilityCurve",
    "audit",
    "compare",
    "count_records",
    "data",
    "datasets",
    "evaluate",
    "expfam",
    "how_many",
    "inspect",
    "load",
    "models",
    "plan_for",
    "plan_study",
    "preprocessing",
    "privacy",
    "privacy_utility_curve",
    "reference",
    "rehearse",
    "rowwise_product",
]

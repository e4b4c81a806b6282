from .belief_networks.sigmoid import SigmoidBeliefNetwork
from .dynamics.linear import LinearDynamicalSystem
from .dynamics.switching import SwitchingLinearDynamicalSystem
from .gaussian_mixtures.mixture import BayesianGaussianMixture
from .markov.categorical import CategoricalHMM
from .markov.factorial import FactorialHMM
from .markov.gaussian import GaussianHMM
from .markov.poisson import PoissonHMM
from .mixtures.latent_class import LatentClassAnalysis
from .mixtures.mixed import MixedLatentClassAnalysis
from .proportions.dirichlet_multinomial import DirichletMultinomial
from .regression.counts import BayesianBinomialRegression, BayesianNegativeBinomialRegression
from .regression.logistic import BayesianLogisticRegression
from .regression.mixed.estimator import MixedLogisticRegression, MixedNegativeBinomialRegression
from .second_moments.factors import FactorAnalysis, ProbabilisticPCA
from .second_moments.linear_regression import BayesianLinearRegression
from .spatial.counts import SpatialCounts
from .tables.table import PrivateTable
from .topics.lda import LatentDirichletAllocation

__all__ = [
    "BayesianBinomialRegression",
    "BayesianGaussianMixture",
    "BayesianLinearRegression",
    "BayesianLogisticRegression",
    "BayesianNegativeBinomialRegression",
    "CategoricalHMM",
    "DirichletMultinomial",
    "FactorAnalysis",
    "FactorialHMM",
    "GaussianHMM",
    "LatentClassAnalysis",
    "LatentDirichletAllocation",
    "LinearDynamicalSystem",
    "MixedLatentClassAnalysis",
    "MixedLogisticRegression",
    "MixedNegativeBinomialRegression",
    "PoissonHMM",
    "PrivateTable",
    "ProbabilisticPCA",
    "SigmoidBeliefNetwork",
    "SpatialCounts",
    "SwitchingLinearDynamicalSystem",
]

from .belief_networks.sigmoid import SigmoidBeliefNetwork
from .mixtures.latent_class import LatentClassAnalysis
from .proportions.dirichlet_multinomial import DirichletMultinomial
from .regression.counts import BayesianBinomialRegression, BayesianNegativeBinomialRegression
from .regression.logistic import BayesianLogisticRegression
from .topics.lda import LatentDirichletAllocation

__all__ = [
    "BayesianBinomialRegression",
    "BayesianLogisticRegression",
    "BayesianNegativeBinomialRegression",
    "DirichletMultinomial",
    "LatentClassAnalysis",
    "LatentDirichletAllocation",
    "SigmoidBeliefNetwork",
]

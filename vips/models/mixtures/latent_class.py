"""Latent class analysis: mixtures of independent categorical columns.

    w ~ Dirichlet(α, …, α),   θ_kj ~ Dirichlet(η, …, η)          K classes, column j with L_j categories
    z_n | w ~ Categorical(w),   x_nj | z_n ~ Categorical(θ_z_n,j)

Missing answers are left out of a record's likelihood, which is exact if they are missing at random.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from vips._support.arguments import arguments, number
from vips.core.phases import FitPhase
from vips.core.records.source import DataSource
from vips.core.sums import Block
from vips.core.sums.classes import ClassStatistics
from vips.data._columns import is_frame
from vips.models.components.categories import Categories
from vips.models.components.declarations import Column, column_of_categories, columns_declared
from vips.models.components.tables import found_categories, largest_codes
from vips.models.mixtures.contract import LatentClasses, dense_rows
from vips.models.mixtures.evidence import ClassEvidence, class_evidence
from vips.models.mixtures.posterior import ClassPosterior

__all__ = ["LatentClassAnalysis"]

_SPREAD = 0.5  # of the first tables around the marginals, on the scale of logarithms
_CLIP = 0.7  # of the largest norm
_MARGINALS = ("records", "marginals")  # blocks of the first phase
_EXAMPLE = '{"sex": ["f", "m"], "children": 5}'


@arguments
class LatentClassAnalysis(LatentClasses):
    """Latent classes of a table of categories, fitted by (private) variational Bayes.

    Parameters
    ----------
    n_components : int
        K, the number of classes.
    categories : mapping, sequence or None
        Of each column: a list of its categories, or n for the codes 0 to n - 1. A mapping by name of the columns of a data
        frame, whose other columns are left out; or one entry for each column. Required by a private fit: categories read from
        the records reveal rare ones. None: those that occur; of an array of numbers, codes up to the largest.
    class_prior : float or None
        α; None is 1/K.
    answer_prior : float
        η.
    inference : {"vb", "em"}
        Variational Bayes, or maximum likelihood by EM, which ignores both priors. E-steps of private fits take posterior means
        with either.
    privacy : PrivacyBudget, PrivacyPlan, StreamPlan or None
        None is a non-private fit, until it has settled. The first step counts the answers in each column, and classes
        begin around them, so a plan needs several steps. A StreamPlan is for :meth:`partial_fit`.
    schedule : RobbinsMonro, callable or None
        Step sizes of the classes' steps, as a function of 2, 3, …; that of the first is 1. None: see :meth:`step_size`.
    clip_share : float
        Clip norm of a plan without one, as a share of :meth:`max_record_norm`.
    on_invalid : {"drop", "raise"}
        What is done with entries of a sparse source in columns that do not exist. No value is invalid: what is no category is
        a missing answer.
    random_state : int, Generator, RandomState or None
        Seeds the classes' start, and the sampling of non-private fits. Noise is never seeded.

    Attributes
    ----------
    posterior_ : ClassPosterior
        ``weights``, and ``columns["answers"]``, one Dirichlet of shape (K, L_j) for each column.
    weights_ : ndarray of shape (n_components,)
        Shares of the classes.
    components_ : ndarray of shape (n_components, n_levels)
        Probabilities of the answers in each class, column after column.
    categories_ : list
        Of each column, a list of its categories, or the range of its codes.
    privacy_ : PrivacyReport
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Of fits to data frames whose names are strings.

    Notes
    -----
    *Privacy.*
    Unit: one row of X. Relation: add or remove one. Released: the noisy totals of every step, hence the posterior and the
    records that ``sample`` draws. Public by declaration: the columns, their categories and dtypes, and all constructor
    arguments. Not covered: choosing any of them by looking at these records; :meth:`predict`, :meth:`predict_proba` and
    :meth:`score_samples`, which read the records that they are given, and add no noise.

    Examples
    --------
    >>> import numpy as np
    >>> from vips import LatentClassAnalysis, PrivacyPlan
    >>> rng = np.random.default_rng(0)
    >>> likes = rng.random((4000, 6)) < np.where(rng.random((4000, 1)) < 0.4, 0.9, 0.2)
    >>> plan = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-6, sampling_rate=1.0, n_steps=15)
    >>> model = LatentClassAnalysis(2, categories=[2] * 6, privacy=plan, random_state=0).fit(likes)
    >>> bool(abs(model.weights_.min() - 0.4) < 0.1)
    True
    >>> model.sample(3, random_state=0)[0].shape
    (3, 6)
    """

    categories: Mapping | Sequence | None = None
    clip_share: float = number(0.0, 1.0, "above 0, and at most 1", default=_CLIP, open_low=True)

    adds_up = True
    _evidence = None  # of the last posterior, once it was computed
    argument = "categories"

    # -- the contract -------------------------------------------------------------------------------------------

    def check_parameters(self) -> None:
        """Check all constructor arguments, before the records are read."""
        if self.categories is not None:
            columns_declared("categories", self.categories, column_of_categories, _EXAMPLE)
        elif self.is_private:
            raise ValueError(
                "`categories` is required for a private fit: reading them from the records would reveal rare ones. Pass the "
                f"public categories of each column, e.g. LatentClassAnalysis(categories={_EXAMPLE}, ...)."
            )
        elif self._in_stream():
            raise ValueError("`categories` is required for a stream: later batches may hold others.")

    def blocks(self) -> dict[str, Block]:
        return self._blocks_of_marginals() | self._blocks_of_classes()

    def phases(self, n_steps: int) -> list[FitPhase]:
        """One step counts the marginals, around which the classes begin; then come the steps of the classes.

        A stream, whose batches are summed in one total, has no step of the marginals: its first batch is in all classes alike.
        """
        n_first = 1 if self._blocks_of_marginals() else 0
        marginals = FitPhase(
            "marginals",
            n_first,
            blocks=list(self._blocks_of_marginals()),
            statistics="_marginal_statistics",
            update=self._first_classes,
            step_size=lambda s: 1.0,
            released="noisy counts of the answers",
        )
        classes = FitPhase(
            "classes",
            n_steps - n_first,
            blocks=list(self._blocks_of_classes()),
            step_size=self.step_size,
            released="noisy counts of classes and of their answers",
        )
        return [marginals, classes]

    def _marginal_statistics(self, records, posterior: ClassPosterior) -> ClassStatistics:
        """Statistics of a single class."""
        columns = self._columns()
        places = columns.places(dense_rows(records))
        everybody, no_rows = np.ones((len(places), 1)), np.empty((len(places), 0))
        return ClassStatistics(everybody, no_rows, places, columns.width, _MARGINALS)

    def _first_classes(self, average, noise_std, previous: ClassPosterior) -> ClassPosterior:
        """Classes around the marginals."""
        n_records, answers = (average[name] for name in _MARGINALS)
        return self._around(n_records[0], answers[0], noise_std["marginals"], previous)

    def to_posterior(self, average, noise_std, previous: ClassPosterior | None) -> ClassPosterior:
        """Prior and totals; noisy totals are denoised first. In the first batch of a stream every record is in all classes
        alike, and classes begin around its marginals."""
        if previous is None or previous.marginals.any():
            return super().to_posterior(average, noise_std, previous)
        noise = np.sqrt(self.n_components) * noise_std["cells"]
        return self._around(average["count"].sum(), average["cells"].sum(axis=0), noise, previous)

    # -- comparisons --------------------------------------------------------------------------------------------

    def components(self, posterior: ClassPosterior) -> tuple[np.ndarray, str]:
        """Classes are matched by the probabilities of their answers."""
        return posterior.profiles, "hellinger"

    # -- methods for users --------------------------------------------------------------------------------------

    def evidence(self) -> ClassEvidence | None:
        """Which classes are real, doubtful, noise or empty; None for a fit without noise, and for a single class.

        Each class is compared with those of four fits to generated records without classes, under as much noise. Only released
        numbers are used, so that this costs no budget. The first call takes about as long as four fits to 5,000 records.
        """
        posterior, known = self.posterior_, self._evidence
        if not hasattr(self, "noisy_totals_") or self.n_components == 1:
            return None
        if known is None or known[0] is not posterior:
            self._evidence = known = (posterior, class_evidence(self))
        return known[1]

    def findings(self) -> dict[str, float]:
        """How many classes are real, and how far the released totals are from those of the best classes."""
        labels, findings = self._labels(), {}
        if labels is not None:
            findings["number of real classes"] = float(labels.count("real"))
        return findings | super().findings()

    def _labels(self) -> list[str] | None:
        evidence = self.evidence()
        return None if evidence is None else evidence.labels

    # -- helpers ------------------------------------------------------------------------------------------------

    def _blocks_of_marginals(self) -> dict[str, Block]:
        """None with one class, whose totals are the marginals."""
        if self.n_components == 1 or self._in_stream():
            return {}
        return dict(zip(_MARGINALS, (Block((1,)), Block((1, self._columns().width))), strict=True))

    def _around(self, n_records: float, answers: np.ndarray, noise: float, previous: ClassPosterior) -> ClassPosterior:
        """Classes of equal size around these marginals."""
        columns, K = self._columns(), self.n_components
        marginals = columns.bins.counts(answers, noise)
        spread = _SPREAD if K > 1 else 0.0
        sizes = np.full((K, 1), max(float(n_records), 0.0) / K)
        totals = np.hstack([sizes, marginals * np.exp(spread * previous.draws) / K])
        return self._posterior(totals, columns, previous.draws, marginals)

    def _declared(self) -> list[Column]:
        known = getattr(self, "categories_", None)
        if known is None:
            return columns_declared("categories", self.categories, column_of_categories, _EXAMPLE)
        return [Column(Categories, categories) for categories in known]

    def records_of(self, X, y) -> DataSource:
        source = super().records_of(X, y)
        if self.categories is not None:
            self.categories_ = [column.values for column in self._declared()]
        return source

    def _remember_categories(self, X) -> None:
        if self.categories is None and not self.is_private:
            holds_numbers = not is_frame(X) and X.dtype.kind not in "OUT"
            self.categories_ = largest_codes(X) if holds_numbers else found_categories(X)

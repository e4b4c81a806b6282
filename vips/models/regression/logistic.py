"""Bayesian logistic regression.

    w ~ N(0, I/α),  α ~ Gamma(a₀, b₀),  intercept ~ N(0, 10²)
    two classes:  P(y = 1 | x) = σ(ψ),  ψ = x'w + intercept
    K classes:    stick-breaking, K - 1 regressions: class j with probability σ(ψ_j), given none before it

===================  ============================================================
symbol               name
===================  ============================================================
μ, Σ                 ``posterior_.mean``, ``posterior_.cov``
E[α]                 ``alpha_``
F                    ``max_norm``
κ = y - ½            linear coefficient of the augmented likelihood, b = 1
===================  ============================================================

Algorithms 4 and 5 of Park et al. (arXiv:1611.00340); K classes: Linderman, Johnson and Adams (2015), arXiv:1506.05843.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import expit
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from vips._support.arguments import arguments
from vips.core.records.source import DataSource
from vips.core.records.tables import from_arrow
from vips.data._labels import label_codes
from vips.expfam.gaussian import posterior_probabilities
from vips.models._coefficient_tables import target_of
from vips.models._coefficients import classification_scores
from vips.models._coordinates import CONSTANT
from vips.models.regression.estimator import PolyaGammaRegression
from vips.models.regression.likelihoods import Classes
from vips.parts import Score
from vips.report.unread import Seen

__all__ = ["BayesianLogisticRegression", "check_classes"]

_CERTAIN = 2.0  # log odds of an average row, above which it is nearly certain of a label
_RAREST = 0.01  # twice the share of records that have a label which is called unread: at least that would be seen


@arguments
class BayesianLogisticRegression(ClassifierMixin, PolyaGammaRegression):
    """Logistic regression with a Gaussian posterior, fitted by (private) variational Bayes.

    Parameters
    ----------
    privacy : PrivacyBudget, PrivacyPlan or None
        None is a non-private fit, full batch.
    max_norm : float or None
        Public bound F on the L2 norm of a row; longer rows are scaled down to it, in fits and predictions. Required by a
        private fit. None scales nothing.
    fit_intercept : bool
        Without one, log odds are 0 where all columns are: a pipeline then takes bounds around 0 only.
    indicators : sequence of (int, int, float), or None
        Public: (first, last, value) says that each row has exactly one of the columns ``first`` to ``last - 1``, at this value,
        and zeros in the others. Their coefficients are then known up to a common number, which a private fit does not look for.
        A pipeline takes them from its encoder; by hand, pass ``encoder.indicators``.
    prior : Gamma, Gaussian, DiagonalGaussian, float or None
        ``vips.expfam.Gamma(shape, rate)`` of the coefficients' precision α, or a fixed α. None is Gamma(1, 1); in a fit without
        privacy and ``max_norm`` of coefficients times the spreads of their columns; in a private fit that searches
        (docs/logistic.md) a flat one in coordinates that it learns. Or the distribution of all coefficients,
        the intercept last: the ``posterior_`` of another fit, ``vips.expfam.Gaussian(mean, precision)``, or
        ``Gaussian.from_covariance(mean, cov)``. Public.
    covariance : {"full", "diagonal"}
        Of the posterior. "full" sums d² numbers; "diagonal", for thousands of features, 3d.
    classes : sequence or None
        The possible labels, numbers or strings. None: the labels in y for a non-private fit; 0 and 1 for a private fit, which
        must not look at y, so that -1 and 1 need ``classes=[-1, 1]``. A record with another label is defective. The
        last one of two, as written, is "yes": coefficients, tables and plots speak of it. More than two: stick-breaking in this
        order. Labels that are not declared are taken in ascending order.
    statistics : {"centred", "paper"}
        Sum residuals at the current posterior, or the paper's (y - ½) x. Without noise both are the same; with noise in the
        precision, the second moves the coefficients.
    schedule : RobbinsMonro, callable or None
        Step sizes: ρ_t as a function of t = 1, 2, …. None: see :meth:`step_size`. A private fit that searches takes none.
    on_invalid : {"drop", "raise"}
        What a private fit does with a defective record (NaN, infinite, undeclared label): ignore it, or stop. The
        latter is outside the guarantee.
    dtype : {numpy.float32, numpy.float64}
        Dtype of the quadratic forms x'Σx over CSR rows; everything else is double precision.
    random_state : int, Generator, RandomState or None
        Seeds the sampling of non-private fits. Noise is never seeded.

    Attributes
    ----------
    posterior_ : CoefficientPosterior
        Gaussian posterior of the coefficients, and the intercept in the last place: ``mean`` of shape (d,) or
        (n_classes - 1, d), ``cov``, ``std``, ``sample``, ``interval``. In a private fit that searches given that what it
        released is noisy; in other private fits ``last_posterior_``.
    last_posterior_ : CoefficientPosterior
        After the last step, which predictions use.
    hidden_columns_ : list of str
        Columns of a private fit whose variance noise hides: nothing is known of their effects.
    classes_ : ndarray of shape (n_classes,)
        In ascending order, as scikit-learn's scorers need it, like the columns of :meth:`predict_proba`.
    target_name_ : str
        The name of y, if it is a series with one: ``summary`` speaks of it.
    coef_ : ndarray of shape (1, n_features) or (n_classes - 1, n_features)
    intercept_ : ndarray of shape (1,) or (n_classes - 1,)
    alpha_ : float or ndarray of shape (n_classes - 1,)
        E[α], where the prior has one.
    public_posterior_, public_weight_ : Gaussian, ndarray of shape (n_outputs,)
        Only after ``fit(..., public_X=, public_y=)``: the posterior of the public records, and the weight that they got.
    bound_ : float
        Evidence lower bound; non-private fits only.
    privacy_ : PrivacyReport
    n_features_in_ : int

    Notes
    -----
    *Privacy.*
    Unit: one row of X with its label. Relation: add or remove one. Released: noisy moments of the columns, then noisy scores,
    information and squares of scores in every step, hence the posterior; with other settings noisy totals of residuals and
    precisions. A plan's ``clip_norm`` is in units of one that the fit finds, by default 1. Public by declaration:
    ``max_norm``, ``classes``, the number of columns, public records, and all other constructor arguments. Not covered: choosing
    any of them, or the features, by looking at these records.

    Examples
    --------
    >>> import numpy as np
    >>> from vips import BayesianLogisticRegression, PrivacyPlan
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-0.5, 0.5, (20_000, 4))
    >>> y = rng.random(20_000) < 1.0 / (1.0 + np.exp(-X @ [4.0, -4.0, 2.0, 0.0]))
    >>> plan = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-6, sampling_rate=1.0, n_steps=20)
    >>> model = BayesianLogisticRegression(privacy=plan, max_norm=1.0).fit(X, y)
    >>> np.argsort(model.coef_[0]).tolist()
    [1, 3, 2, 0]
    >>> model.predict_proba(X[:3]).shape
    (3, 2)
    """

    classes: Sequence | None = None

    # -- methods for users --------------------------------------------------------------------------------------

    def predict_proba(self, X) -> np.ndarray:
        """Posterior-averaged probabilities ∫ σ(a) N(a | x'μ, x'Σx) da, by Gauss-Hermite quadrature.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_records, n_features)

        Returns
        -------
        ndarray of shape (n_records, n_classes)
            Rows sum to 1.
        """
        stick = posterior_probabilities(*self._predictors(X))
        if stick.shape[1] == 1:
            return self._by_class(np.hstack([1.0 - stick, stick]))
        remainders = np.cumprod(1.0 - stick, axis=1)
        return self._by_class(np.hstack([stick[:, :1], stick[:, 1:] * remainders[:, :-1], remainders[:, -1:]]))

    def _by_class(self, of_declared: np.ndarray) -> np.ndarray:
        """Columns of the declared classes in the order of ``classes_``."""
        return of_declared[:, np.argsort(self.likelihood.labels)]

    def predict_log_proba(self, X) -> np.ndarray:
        """Logarithm of :meth:`predict_proba`."""
        return np.log(self.predict_proba(X))

    def decision_function(self, X) -> np.ndarray:
        """x'μ + intercept, shape (n_records,); with more than two classes the log probabilities, (n_records, n_classes).

        Above 0 for the last one of ``classes_``: the negative where that is not the class declared last.
        """
        if self.n_outputs > 1:
            return self.predict_log_proba(X)
        predictor = self._predictors(X)[0][:, 0]
        return predictor if self.likelihood.labels[-1] == self.classes_[-1] else -predictor

    def predict(self, X) -> np.ndarray:
        """The most probable class of each record."""
        scores = self.decision_function(X)
        return self.classes_[(scores > 0.0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]

    def score(self, X, y, sample_weight=None) -> float:
        """Share of records whose class :meth:`predict` gives.

        Raises
        ------
        ValueError
            If y holds a label that is none of the classes, unless an ordinary fit took the classes from its own records.
        """
        y = np.ravel(from_arrow(y))
        is_declared = self.is_private or self.classes is not None
        if is_declared and not set(y.tolist()) <= set(self.classes_.tolist()):
            raise ValueError(
                f"y holds labels that are none of the classes of this fit, {self.classes_.tolist()}: no prediction "
                "equals them, and a private fit ignores such records. Write labels as the classes are written, leave out "
                "records without one, or declare all labels, e.g. classes=[-1, 1], and fit again."
            )
        return ClassifierMixin.score(self, X, y, sample_weight)

    @property
    def coef_(self) -> np.ndarray:
        """Posterior means of the coefficients, shape (1, n_features) or (n_classes - 1, n_features)."""
        return np.atleast_2d(self.posterior_.mean)[:, : self.n_features_in_]

    # -- the contract -------------------------------------------------------------------------------------------

    def check_parameters(self) -> None:
        super().check_parameters()
        if self.classes is not None:
            check_classes(self.classes, self.is_private)

    def check_features(self) -> None:
        super().check_features()
        self.classes_ = np.sort(self.likelihood.labels)

    def check_values(self, X, y) -> None:
        check_classification_targets(y)
        self.classes_ = np.unique(y if self.classes is None else self.classes)
        if len(self.classes_) < 2:
            raise ValueError(
                f"y holds one class only, {self.classes_[0]!r}. Declare all possible classes, e.g. classes=[0, 1]."
            )
        unknown = np.setdiff1d(y, self.classes_)
        if len(unknown):
            raise ValueError(f"y holds labels that are not in `classes`: {unknown[:5].tolist()}.")

    def check_source(self, source: DataSource) -> None:
        if self.is_private and self.likelihood.are_words:
            raise TypeError(
                "`classes` are strings, but data sources hold labels as numbers: declare these as `classes`."
            )

    def labels_of(self, y):
        """Places among the classes where these are strings."""
        return label_codes(y, self.likelihood.labels) if self.likelihood.are_words else y

    @property
    def likelihood(self) -> Classes:
        """The declared labels in a private fit, and in a non-private fit that has not seen its labels yet."""
        return Classes(np.asarray(vars(self).get("classes_", [0, 1]) if self.classes is None else self.classes))

    def typical_labels(self, predictor: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """For two classes the last one with the probability σ of the predictor; more are about equally frequent."""
        classes = np.arange(2) if self.classes is None else np.asarray(self.classes)
        later = np.arange(len(classes) - 1, 0, -1.0)  # classes after each
        p = expit((-1.0 if len(classes) == 2 else 1.0) * predictor[:, None] - np.log(later))
        is_own = np.hstack([rng.random(p.shape) < p, np.ones((len(p), 1), bool)])
        return classes[np.argmax(is_own, axis=1)]

    def counts_read(self) -> list[Seen]:
        """The rarer of two labels, where an average row is nearly certain of the other: how often it is expected, about the
        information of the intercept, and how much more often it was, its score."""
        released = self._scores_released() if self.n_outputs == 1 and self.fit_intercept else ()
        if not released or self._is_given or self._knows_public:
            return []
        (of,), search = released, self.last_posterior_.search
        *slopes, intercept = self.last_posterior_.around.mean / self._units_of_rows(search.zooms.coordinates)
        if CONSTANT * abs(intercept) < max(_CERTAIN, float(np.linalg.norm(slopes))):
            return []
        late, sign = slice(len(of.points) // 2, None), -np.sign(intercept)
        counts = of.informations[late, -1, -1] / CONSTANT**2 + sign * of.scores[late, -1] / CONSTANT
        std = np.linalg.norm(of.stds[late, :2] / [CONSTANT, CONSTANT**2]) / len(counts)
        total = search.zooms.count
        seen = [counts.mean(), total] if sign < 0.0 else [total, counts.mean()]
        labels = self.likelihood.labels.tolist()
        return [Seen(target_of(self), "label", np.array(seen), std, total, std, labels, least=_RAREST)]

    def held_out_scores(self, X, y=None) -> list[Score]:
        """Log-loss, and the AUC of two classes."""
        return classification_scores(self, X, y)

    def predictions(self, X) -> np.ndarray:
        """Probabilities of the classes."""
        return self.predict_proba(X)

    def _not_settled(self, n_steps: int, distance: float) -> str:
        return (
            f"{super()._not_settled(n_steps, distance)} Where columns separate the labels, coefficients have hardly a limit: a "
            "stronger `prior` gives them one."
        )

    def _settings_of_public(self) -> dict:
        return {"classes": self.likelihood.labels.tolist()}

    def _declared(self) -> tuple[str, ...]:
        *others, last = map(str, self.likelihood.labels)
        default = "; none were declared" if self.classes is None else ""
        order = "each against later ones" if others[1:] else 'the last one is "yes"'
        return (f"classes of {target_of(self)}: {', '.join(others)} and {last} ({order}{default})",)


def check_classes(classes, is_private: bool) -> None:
    """Raise ValueError unless these can be the declared labels of a fit."""
    labels = np.asarray(classes)
    is_none = labels.ndim != 1 or len(labels) < 2 or labels.dtype.kind not in "biufUS"
    if is_none or len({(isinstance(label, str), isinstance(label, bytes)) for label in classes}) > 1:
        raise ValueError(f"`classes` must list at least two labels, all numbers or all strings, got {classes!r}.")
    if len(np.unique(labels)) != len(labels) or (labels.dtype.kind == "f" and not np.isfinite(labels).all()):
        raise ValueError(f"`classes` holds a label twice, or one that is not finite: {classes!r}.")
    if is_private and labels.dtype.kind == "S":
        raise ValueError("`classes` of a private fit must be numbers, booleans or strings, not bytes.")

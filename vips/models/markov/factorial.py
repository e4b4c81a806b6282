"""Factorial hidden Markov model: several chains at once, whose effects on a vector add up."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils.validation import check_is_fitted

from vips._support.extras import imported
from vips._support.validation import check_integer
from vips.core.mechanism.random_state import RandomStateLike, as_generator
from vips.data._sequences import Sequences
from vips.data._step_index import step_frame
from vips.expfam import Dirichlet, Draws
from vips.models.components.matching.simulator import levels_at
from vips.models.markov import kernels
from vips.models.markov.factorial_contract import FactorialChainModel
from vips.models.markov.factorial_inference import Inferred, inferred_chains
from vips.models.markov.factorial_posterior import FactorialPosterior, long_run
from vips.parts import Part, indexed, last_of
from vips.report.words import whose

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FactorialHMM"]

_LEAST = 1e-300


class FactorialHMM(FactorialChainModel):
    """Factorial hidden Markov model of sequences of vectors, y ~ N(Σ_m W_m[s_m], C), fitted by (private) variational Bayes.

    ``n_chains`` Markov chains move on their own, and their effects on a step add up: appliances on a meter, drugs on a pulse.
    One record is one whole sequence. The fit is structured mean field (Ghahramani and Jordan, 1997): given a sequence, chains
    are independent of each other, and each is exact.

    Parameters
    ----------
    n_chains : int
        M.
    n_components : int
        K, the number of states of each chain.
    startprob_prior, transmat_prior : float or None
        Concentration of the Dirichlet priors; None is 1/K.
    beta_prior : float or None
        How many steps the prior of the effects counts as, which says that there are none. None is 1.
    scale_prior : float or None
        Of C, times ``n_features``, in units of the variance of all steps. None is 0.001.
    inference : {"vb", "em"}
        Variational Bayes, or maximum likelihood by variational EM, which ignores the priors. E-steps of private fits take
        posterior means with either.
    max_iter : int
        Rounds of mean field over the chains of a sequence.
    n_features : int or None
        Columns of every sequence: public. None takes those of X; a private fit to a list of arrays, whose widths may differ,
        needs it.
    max_norm : float or None
        Public; required for privacy. Steps that are longer vectors are scaled down to it.
    max_length : int
        Public. A fit reads the first ``max_length`` steps of a sequence.
    typical_length : int
        Public. Length of a sequence that counts whole; longer ones weigh less.
    privacy : PrivacyBudget, PrivacyPlan or None
        None is a non-private fit, until it has settled.
    schedule : RobbinsMonro, callable or None
        Step sizes of the steps after those, as a function of 2, 3, …. None: see :meth:`step_size`.
    random_state : int, Generator, RandomState or None
        Seeds how states differ at first, and the sampling of non-private fits. Noise is never seeded.

    Attributes
    ----------
    posterior_ : FactorialPosterior
        Of a private fit at the match, if it is accepted: ``draws`` then holds those of "shares" of the states, "start",
        "moves", "means", "offset" and "covariance".
    startprob_, transmat_ : ndarray of shape (M, K), (M, K, K)
        Of the match of a private fit, else posterior means.
    means_ : ndarray of shape (M, K, d)
        Effects of the states of each chain, about their mean over a chain's steps in the long run.
    offset_ : ndarray of shape (d,)
        The mean of all steps in the long run.
    covar_ : ndarray of shape (d, d)
        C.
    privacy_ : PrivacyReport

    Notes
    -----
    *Privacy.*
    Unit: one sequence, of any length; with ``groups``, all sequences of a person. Relation: add or remove one. Released: the
    noisy totals of every step, hence the posterior and the sequences that ``sample`` draws. Public by declaration:
    all constructor arguments. Not covered: choosing any of them by looking at these records; methods that read sequences.

    A step with a missing number, or one that is not finite, is a missing step. A fit finds a local optimum: without privacy
    compare some ``random_state`` by ``score``.

    A private fit is matched to its totals (:meth:`match`), and what is read is the match where it is accepted, for at most 64
    joint states. Simulated sequences are seen by the same mean field as the records. Lengths of sequences, and which steps are
    missing, are taken as independent of the states.

    Examples
    --------
    >>> import numpy as np
    >>> from vips import FactorialHMM
    >>> rng = np.random.default_rng(0)
    >>> on = (rng.random((200, 30, 2)) < 0.1).cumsum(axis=1) % 2                    # two switches
    >>> series = on @ [[1.0, 0.0, 1.0], [0.0, 2.0, 1.0]] + 0.1 * rng.normal(size=(200, 30, 3))
    >>> model = FactorialHMM(2, 2, random_state=1).fit(list(series))
    >>> np.round(np.sort(np.abs(np.diff(model.means_, axis=1)[:, 0]), axis=0), 1)
    array([[0., 0., 1.],
           [1., 2., 1.]])
    """

    # -- users --------------------------------------------------------------------------------------------------

    def predict_proba(self, X, lengths=None) -> np.ndarray | pd.DataFrame:
        """Probabilities of the states of each chain at each step, shape (n_steps, M, K); in a data frame M * K columns."""
        shares = self._inferred(self.sequences_of(X, lengths)).shares
        names = [f"chain {m}, {state}" for m in range(self.n_chains) for state in self.state_names()]
        return step_frame(X, shares.reshape(len(shares), self.n_chains, self.n_components), names)

    def predict(self, X, lengths=None) -> np.ndarray | pd.DataFrame:
        """The most probable path of each chain (Viterbi) given the others' expected states, shape (n_steps, M)."""
        records, K, posterior = self.sequences_of(X, lengths), self.n_components, self._at_means()
        inference = self._inferred(records)
        logs = [np.log(np.maximum(probabilities, _LEAST)) for probabilities in posterior.chain]
        states = np.empty((len(records.values), self.n_chains), np.int64)
        path, log_probability = np.empty(len(states), np.int64), np.empty(len(records))
        for m in range(self.n_chains):
            log_likely = np.ascontiguousarray(inference.log_likely[:, m * K : (m + 1) * K])
            kernels.best_paths(records.offsets, logs[0][m], logs[1][m], log_likely, path, log_probability)
            states[:, m] = path
        return step_frame(X, states, [f"chain {m}" for m in range(self.n_chains)])

    def sample(
        self, n_samples: int = 1, random_state: RandomStateLike = None, *, lengths: object
    ) -> tuple[Sequences, np.ndarray]:
        """Synthetic sequences of these lengths, and their states, shape (n_steps, M)."""
        check_is_fitted(self, "last_posterior_")
        check_integer("n_samples", n_samples, 0)
        rng, lengths = as_generator(random_state), np.asarray(lengths, np.int64)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        states = np.empty((offsets[-1], self.n_chains), np.int64)
        start, moves, chains = self.startprob_, self.transmat_, np.arange(self.n_chains)
        for t in range(int(lengths.max(initial=0))):  # all sequences at once
            here = offsets[:-1][lengths > t] + t
            draws = rng.random((len(here), self.n_chains))
            states[here] = levels_at(draws, start if t == 0 else moves[chains, states[here - 1]])
        noise = rng.standard_normal((len(states), self.n_features_in_))
        effects = self.means_[chains, states].sum(axis=1)
        return Sequences(self.offset_ + effects + noise @ np.linalg.cholesky(self.covar_).T, offsets), states

    @property
    def startprob_(self) -> np.ndarray:
        """Probabilities of the first state of each chain, shape (M, K)."""
        check_is_fitted(self, "last_posterior_")
        return self.posterior_.means_of_chain()[0]

    @property
    def transmat_(self) -> np.ndarray:
        """Probabilities of the next state, a row for each state, shape (M, K, K)."""
        check_is_fitted(self, "last_posterior_")
        return self.posterior_.means_of_chain()[1]

    @property
    def means_(self) -> np.ndarray:
        """Effects of the states, shape (M, K, d); a chain's are 0 on average in the long run."""
        check_is_fitted(self, "last_posterior_")
        effects = self._effects(self.posterior_)
        return effects - self._long_run()[:, None] @ effects

    @property
    def offset_(self) -> np.ndarray:
        """The mean of a step in the long run, shape (d,)."""
        check_is_fitted(self, "last_posterior_")
        effects = self._long_run()[:, None] @ self._effects(self.posterior_)
        return self.posterior_.centre + effects.sum(axis=(0, 1))

    @property
    def covar_(self) -> np.ndarray:
        """Covariance of a step given all states, shape (d, d)."""
        check_is_fitted(self, "last_posterior_")
        back = np.linalg.inv(self.posterior_.whitening)
        return back @ (self.posterior_.scale / self.posterior_.dof) @ back.T

    def summary(self, level: float = 0.95) -> pd.DataFrame:
        """The states of all chains, in their order.

        Parameters
        ----------
        level : float
            Of the intervals.

        Returns
        -------
        pandas.DataFrame
            A row for each state of each chain: its share of the steps, and its "lower" and "upper" limit where intervals know
            the noise; how probable it is as the first one, how many steps a stay takes, and its effect on each column, with
            limits.

        Warns
        -----
        PrivacyWarning
            If there are no limits in a private fit: it says why.
        """
        pd = imported("pandas", "summary()")
        check_is_fitted(self, "last_posterior_")
        self.warn_of_no_intervals()
        posterior, effects = self.posterior_, self.means_
        visits = posterior.start.concentration + posterior.moves.concentration.sum(axis=1)
        stays = 1.0 / np.maximum(1.0 - np.diagonal(self.transmat_, axis1=1, axis2=2), 1e-12)
        limits = {name: posterior.draws[name].interval(level) for name in ("shares", "means") if posterior.draws}
        table = {"share": visits / visits.sum(axis=1, keepdims=True)}
        table |= dict(zip(("lower", "upper"), limits.get("shares", ()), strict=False))
        table |= {"first": self.startprob_, "steps of a stay": np.minimum(stays, float(self.max_length))}
        for j, name in enumerate(self.column_names()):
            table[f"effect on {name}"] = effects[:, :, j]
            for side, bounds in zip(("lower", "upper"), limits.get("means", ()), strict=False):
                table[f"{side} effect on {name}"] = bounds[:, :, j]
        chains = [f"chain {m}" for m in range(self.n_chains)]
        index = pd.MultiIndex.from_product([chains, self.state_names()])
        table = pd.DataFrame({name: values.ravel() for name, values in table.items()}, index)
        return table.rename_axis(columns=whose(getattr(self, "privacy_", None)))

    def describe(self) -> dict:
        return self.described(
            "hence the posterior of all of them",
            f"max_norm = {self.max_norm or np.inf:g}: longer steps are scaled down to it",
            f"number of columns: {self.n_features_in_}; {self.declared_of_steps()}",
            "n_chains, n_components, priors and all other constructor arguments",
        )

    # -- comparisons and helpers ----------------------------------------------------------------------------------

    def posterior_parts(self, posterior) -> list[Part]:
        """First states and moves of the chains, whose states ascend in the column that their chain moves most."""
        if not isinstance(posterior, FactorialPosterior):
            return super().posterior_parts(posterior)
        effects, states = self._effects(posterior), self.state_names()
        order = np.array([effect[:, np.ptp(effect, axis=0).argmax()].argsort() for effect in effects])
        chains = np.arange(len(order))[:, None]
        of_start, of_moves = (chains, order), (chains[:, :, None], order[:, :, None], order[:, None])
        start, moves = (
            Draws(draws.draws[:, *of], draws.mean[of])
            if (draws := posterior.draws.get(name))
            else Dirichlet(getattr(posterior, name).concentration[of])
            for name, of in (("start", of_start), ("moves", of_moves))
        )
        return [
            Part("start", start, partial(last_of, states), states),
            Part("moves", moves, partial(indexed, "moves"), states),
        ]

    def components(self, posterior: FactorialPosterior) -> tuple[np.ndarray, str]:
        """Chains are matched by the covariances of their effects."""
        effects = self._effects(posterior)
        effects = effects - effects.mean(axis=1, keepdims=True)
        return np.einsum("mki,mkj->mij", effects, effects).reshape(self.n_chains, -1), "euclidean"

    def in_order(self, posterior: FactorialPosterior, order: np.ndarray) -> FactorialPosterior:
        return posterior.in_order(order)

    def _effects(self, posterior: FactorialPosterior) -> np.ndarray:
        """Shape (M, K, d)."""
        effects = np.linalg.solve(posterior.whitening, posterior.mean)
        return np.ascontiguousarray(effects.T).reshape(self.n_chains, self.n_components, -1)

    def _long_run(self) -> np.ndarray:
        """Share of the steps that each chain spends in each state, shape (M, K)."""
        return long_run(self.transmat_)

    def _inferred(self, records: Sequences) -> Inferred:
        return inferred_chains(self._usable(records), self._at_means(), self.max_iter)

    def _at_means(self) -> FactorialPosterior:
        check_is_fitted(self, "last_posterior_")
        return replace(self.posterior_, plug_in=True)

    def _log_likelihood(self, records: Sequences) -> np.ndarray:
        return self._inferred(records).bound

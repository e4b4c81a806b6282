"""The command ``compile``: the kernels of fits and predictions, written into Numba's cache before anybody needs them."""

from __future__ import annotations

import argparse
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from vips._support.kept_kernels import is_kept_here

__all__ = ["compile_kernels", "models_compiled"]

_N, _WIDTH = 200, 6  # records, and columns, words or symbols
_MATCHED = ("LatentDirichletAllocation",)  # models whose match has kernels of its own
_READ = {"predict", "smooth"}  # methods that have kernels of their own


def compile_kernels(options: argparse.Namespace) -> None:
    """Fit each of the named models, or all, to a few records."""
    from vips.core.exact.rowwise_kernels import multiply_double
    from vips.core.plan import PrivacyPlan

    if not is_kept_here(multiply_double):
        raise PermissionError(
            "Kernels cannot be kept: their folders are read-only. Set NUMBA_CACHE_DIR=FOLDER to one that can be written."
        )

    kinds = defaultdict(list)
    for name, kind in models_compiled():
        kinds[name].append(kind)
    if unknown := set(options.models) - set(kinds):
        raise ValueError(f"No model is called {', '.join(sorted(unknown))}; there are {', '.join(kinds)}.")
    for name in options.models or kinds:
        start = time.perf_counter()
        ordinary = PrivacyPlan.non_private(sampling_rate=1.0, n_steps=2)
        private = PrivacyPlan(noise_multiplier=1.0, sampling="full", n_steps=6)
        with warnings.catch_warnings():  # of noise, in which nothing stands out
            warnings.simplefilter("ignore")
            for i, (model, all_of) in enumerate(kinds[name]):
                for records in all_of:
                    model.set_params(privacy=ordinary).fit(*records)
                    for read in _READ & set(dir(model)):
                        getattr(model, read)(records[0])
                    for noise in ("discrete", "gaussian"):
                        model.set_params(privacy=replace(private, noise=noise)).fit(*records)
                if name in _MATCHED and i == 0:  # a match takes seconds
                    _ = model.posterior_
        print(f"{name}: {time.perf_counter() - start:.1f} s")


def models_compiled() -> Iterator[tuple[str, tuple[object, list[tuple]]]]:
    """Names of classes and, for all types of a class's kernels, models with records in the containers for which they differ."""
    from vips import models

    rng = np.random.default_rng(0)
    rows, codes = rng.uniform(-0.5, 0.5, (_N, _WIDTH)), rng.integers(0, 2, (_N, _WIDTH))
    counts, labels = rng.poisson(0.5, (_N, _WIDTH)), rng.integers(0, 2, _N)
    symbols, steps = list(rng.integers(0, _WIDTH, (_N, 8))), list(rng.uniform(-0.5, 0.5, (_N, 8, 2)))
    tables = [(rows, labels), (sp.csr_array(rows), labels)]
    regression = {"max_norm": 2.0}
    of_steps = {"max_length": 8, "n_features": 2}
    columns = [(-1.0, 1.0)] * 3 + [[0, 1]] * 3
    mixed = np.hstack([rows[:, :3], codes[:, :3]])
    classes = [
        (models.BayesianLogisticRegression(**regression), tables),
        (models.BayesianBinomialRegression(**regression), tables),
        (models.BayesianNegativeBinomialRegression(max_count=5, **regression), tables),
        (models.SpatialCounts(areas=range(_WIDTH), max_count=5), [(labels, labels)]),
        (models.MixedLogisticRegression(**regression), tables),
        (models.MixedNegativeBinomialRegression(max_count=5, **regression), tables),
        (models.BayesianLinearRegression(target_range=(0.0, 1.0), **regression), tables),
        (models.LatentClassAnalysis(2, categories=[[0, 1]] * _WIDTH), [(codes,), (codes.astype(float),)]),
        (models.MixedLatentClassAnalysis(2, columns=columns), [(mixed,)]),
        (models.PrivateTable(columns=columns), [(mixed,)]),
        (models.BayesianGaussianMixture(2, max_norm=2.0), [(rows,)]),
        (models.SigmoidBeliefNetwork(2), [(codes,), (sp.csr_array(codes),)]),
        (models.DirichletMultinomial(), [(counts,)]),
        (models.ProbabilisticPCA(1, max_norm=2.0), [(rows,)]),
        (models.FactorAnalysis(1, max_norm=2.0), [(rows,)]),
        (models.CategoricalHMM(2, n_symbols=_WIDTH, max_length=8), [(symbols,)]),
        (models.PoissonHMM(2, max_count=5, **of_steps), [([np.abs(np.rint(9 * s)) for s in steps],)]),
        (models.FactorialHMM(2, 2, max_norm=2.0, **of_steps), [(steps,)]),
        (models.LinearDynamicalSystem(2, max_norm=2.0, **of_steps), [(steps,)]),
        # last, because `make test` compiles these in a process beside
        (models.GaussianHMM(2, max_norm=2.0, **of_steps), [(steps,)]),
        (models.SwitchingLinearDynamicalSystem(2, 2, max_norm=2.0, **of_steps), [(steps,)]),
        (models.LatentDirichletAllocation(3, vocabulary=_WIDTH), [(counts,), (sp.csr_array(counts),)]),
        (models.LatentDirichletAllocation(3, vocabulary=_WIDTH, dtype=np.float64), [(counts,)]),
    ]
    yield from ((type(model).__name__, (model, records)) for model, records in classes)

"""Exact posteriors, to compare variational ones with. Slow, and not private: not for records that need protection."""

from vips.reference.gibbs import LogisticDraws, MixedDraws, effective_sample_size, gibbs_logistic, gibbs_mixed_logistic

__all__ = ["LogisticDraws", "MixedDraws", "effective_sample_size", "gibbs_logistic", "gibbs_mixed_logistic"]

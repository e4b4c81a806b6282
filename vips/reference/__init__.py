"""Exact posteriors to hold variational ones against. Slow, and not private: not for records that need protection."""

from vips.reference.logistic import LogisticDraws, effective_sample_size, gibbs_logistic

__all__ = ["LogisticDraws", "effective_sample_size", "gibbs_logistic"]

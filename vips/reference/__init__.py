"""Exact posteriors, to compare variational ones with. Slow, and not private: not for records that need protection."""

from vips.reference.logistic import LogisticDraws, effective_sample_size, gibbs_logistic

__all__ = ["LogisticDraws", "effective_sample_size", "gibbs_logistic"]

"""Posteriors of logistic regression beside the exact one."""

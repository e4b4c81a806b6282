"""The paper's experiments, ours, and benchmarks: ``python -m experiments``."""

"""Audits at full size: how tight the lower bounds on ε are, and which finding rejects each broken copy of the code.

``python -m experiments audit`` writes ``experiments/results/audit``; docs/audit.md shows the tables.
"""

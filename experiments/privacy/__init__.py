"""Accounting, audits, coverage of intervals."""

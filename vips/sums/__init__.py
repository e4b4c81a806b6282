"""Sums of sufficient statistics. A family says what it sums; how long a record is, is written here, and nowhere else."""

from vips.sums.blocks import Block, NoisyTotals, ReleasedStep
from vips.sums.forms import DenseStatistics, RecordStatistics

__all__ = ["Block", "DenseStatistics", "NoisyTotals", "RecordStatistics", "ReleasedStep"]

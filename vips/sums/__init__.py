"""Sums of sufficient statistics. A family says what it sums; how long a record is, is written here, and nowhere else."""

from vips.sums.blocks import Block, NoisyTotals, ReleasedStep
from vips.sums.forms import BySquaredWeights, DenseStatistics, Form, Joint, Quadratic, RecordStatistics
from vips.sums.runs import ComponentSums, SumsOfSymbols, SymbolSums

__all__ = [
    "Block",
    "BySquaredWeights",
    "ComponentSums",
    "DenseStatistics",
    "Form",
    "Joint",
    "NoisyTotals",
    "Quadratic",
    "RecordStatistics",
    "ReleasedStep",
    "SumsOfSymbols",
    "SymbolSums",
]

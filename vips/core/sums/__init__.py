"""Sums of sufficient statistics. A family says what it sums; how long a record is, is written here, and nowhere else.

===================  ======================================================================================
module               forms
===================  ======================================================================================
``forms``            arrays; forms side by side; a form by squared weights
``outer``            factors × rows, and x xᵀ of a row times factors; shares at the words of a document
``runs``             shares × rows, and shares at symbols, summed over the rows of a record
``classes``          shares at the answers of a record
``regressions``      outer products side by side; squares of a record's own share
``networks``         hidden × visible units
``gaussians``        moments in the coordinates of each component; ``gaussian_runs``: summed over a sequence
===================  ======================================================================================
"""

from vips.core.sums.blocks import Block, NoisyTotals, ReleasedStep
from vips.core.sums.forms import BySquaredWeights, DenseStatistics, Form, Joint, RecordStatistics
from vips.core.sums.outer import Outer, Quadratic, Rows

__all__ = [
    "Block",
    "BySquaredWeights",
    "DenseStatistics",
    "Form",
    "Joint",
    "NoisyTotals",
    "Outer",
    "Quadratic",
    "RecordStatistics",
    "ReleasedStep",
    "Rows",
]

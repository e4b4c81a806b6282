"""Sums of sufficient statistics. A family says what it sums; how long a record is, is written here, and nowhere else.

===================  ======================================================================================
module               forms
===================  ======================================================================================
``forms``            arrays; z zᵀ of a row; forms side by side; a form by squared weights
``runs``             shares × rows, and shares at symbols, summed over the rows of a record
``classes``          shares at the answers of a record
``words``            shares at the words of a document
``regressions``      residuals × rows, weights × squares of rows; squares of a record's own share
``networks``         hidden × visible units
``gaussians``        moments in the coordinates of each component; ``gaussian_runs``: summed over a sequence
===================  ======================================================================================
"""

from vips.core.sums.blocks import Block, NoisyTotals, ReleasedStep
from vips.core.sums.forms import BySquaredWeights, DenseStatistics, Form, Joint, Quadratic, RecordStatistics

__all__ = [
    "Block",
    "BySquaredWeights",
    "DenseStatistics",
    "Form",
    "Joint",
    "NoisyTotals",
    "Quadratic",
    "RecordStatistics",
    "ReleasedStep",
]

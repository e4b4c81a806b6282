"""A comparison as one HTML file for somebody who has to judge it: no network, no library, readable without its script.

text.py        names and numbers as HTML that cannot be taken for markup, labels of sources, sortable tables
statement.py   what was promised: the privacy statement, and what ε means
numbers.py     the rows of the comparison, and the curve of scores
posteriors.py  both posteriors side by side: marginals, topics, images of weights
charts.py      figures as SVG that take their colours from the page
densities.py   curves of marginals
page.py        the whole, and the file
"""

from vips.compare._report.page import write_report

__all__ = ["write_report"]

"""A comparison as one HTML file for somebody who has to judge it; needs no network and no library, readable without its script.

page.py        the sections, the templates with those of the certificate, which is the first page, and the file
templates/     all HTML, a file for each section
numbers.py     the rows of the comparison, ε against δ, and the curve of scores
posteriors.py  both posteriors side by side: marginals, topics, images of weights
charts.py      figures as SVG that take their colours from the page
densities.py   curves of marginals
"""

from vips.comparison.report.page import write_report

__all__ = ["write_report"]

"""A comparison as one HTML file for somebody who has to judge it; needs no network and no library, readable without its script.

page.py        the templates with those of the certificate, which is the first page, and the file
templates/     all HTML, a file for each section
sections.py    the sections and their values: the rows, ε against δ, scores, both posteriors side by side
charts.py      figures as SVG that take their colours from the page
"""

from vips.tools.comparison.report.page import write_report

__all__ = ["write_report"]

"""The privacy certificate: one page for a data-protection officer; also the first page of a comparison's report.

page.py      what the page shows, and the file
templates/   all HTML, a file for each section
"""

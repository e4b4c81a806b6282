"""The privacy certificate: one page for a data-protection officer; also the first page of a comparison's report.

page.py      what the page shows, and the file
check.py     whether page, fitted model and ledger agree
templates/   all HTML, a file for each section
"""

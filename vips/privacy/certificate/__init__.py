"""The privacy certificate: one page about one fit, for a data-protection officer; also the first page of a comparison's report.

declared.py  what only people can state: data set, purpose, who is responsible, who chose ε and why
cover.py     the first page
totals.py    what several fits of the same records cost together
statement.py the technical statement, and what ε means
write.py     the file
templates/   all HTML, a file for each section
"""

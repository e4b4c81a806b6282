"""What all HTML of vips shares: it escapes every text from outside. Pages are one file each, and need no network.

engine.py    Jinja2: escapes all strings
page.py      the policy of a page, and the file
tables.py    tables for notebooks
text.py      numbers in words, and cells of tables
templates/   the frame of a page, tables for notebooks, and macros
"""

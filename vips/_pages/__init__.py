"""What all HTML of vips shares: it escapes every text from outside. Pages are one file each, and need no network.

page.py      numbers in words, Jinja2 (it escapes all strings), the policy of a page, and the file
tables.py    tables for notebooks
templates/   the frame of a page, tables for notebooks, and macros
"""

"""What all HTML files of vips share: one file each, that needs no network and escapes every text from outside.

engine.py    Jinja2: escapes all strings
page.py      the policy of a page, and the file
text.py      numbers in words, and cells of tables
templates/   the frame of a page, and macros
"""

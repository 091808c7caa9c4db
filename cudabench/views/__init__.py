"""Everything shown or exported: tables, drawings, pages, files for other tools.

It turns records into text for `api` and `cli`.
"""

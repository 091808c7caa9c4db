"""Everything shown or exported: tables, drawings, pages, files for other tools.

Records in, text out; `api` and `cli` use it.
"""

"""Everything that is shown or exported: tables, drawings, pages, and files for other tools.

The modules turn records into text for `api` and `cli`.
"""

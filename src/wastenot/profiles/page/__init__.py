"""The report of power profiles: figures, tables and their page."""

"""The report of power profiles: figures, words and their page."""

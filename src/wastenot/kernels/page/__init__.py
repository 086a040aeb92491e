"""The report of a plan: tables, figures and its page."""

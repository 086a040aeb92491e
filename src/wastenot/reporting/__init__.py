"""The report: tables, figures and one self-contained page. Every number in it comes from planning."""

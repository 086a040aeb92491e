"""Reports: tables, figures and self-contained pages about plans and power profiles. Nothing here computes numbers."""

"""Calibration: from a sweep to a simulated GPU that behaves like the card it was measured on."""

"""What tests, benchmarks and documentation have in common: stand-ins, simulated truths, random instances, references."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
"""The checkout."""

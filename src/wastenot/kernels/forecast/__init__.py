"""Forecasts of what kernel-level clocks would save on a GPU whose clocks were never set."""

"""Kernels at work: settings searched with few measurements, plans refined, validated and transferred."""

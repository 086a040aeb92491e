"""Devices: things that run kernels, read sensors and may set clocks, behind one small protocol for each role."""

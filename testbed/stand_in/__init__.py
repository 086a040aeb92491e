"""A stand-in for NVML: simulated GPUs, held by a server process, served through the functions of ``pynvml``.

    a test ── Control ───────────┐                      faults, truth, tasks, virtual time
                                 ├── socket ── Server ── simulated GPUs
    any program ── shim/pynvml ──┘                      what a killed program left behind stays there

The shim is NVIDIA's own ``pynvml`` over another library underneath, so that its classes, constants and conversions are the
real ones; it never falls back to a real driver.
"""

"""What it means for a plan that its workload was captured on another kind of device than it will run on."""

from __future__ import annotations


def capture_note(captured_on: str | None) -> str | None:
    """What to know of a workload by the kind of device that it was captured on; ``None`` where there is nothing to say."""
    if captured_on != "cpu":
        return None
    return (
        "Captured on the CPU: on CUDA PyTorch runs other operations (attention, optimizers), so these are not the "
        "kernels that the GPU will run. Capture the step there: wastenot kernel capture FILE.py:FUNCTION --device cuda:0"
    )

"""The kernels of a vLLM's steps by themselves, on the card that ``vllm_on_gpu.py`` ran it on, at the card's own clocks.

WASTENOT_READ_ONLY=1 python benchmarks/h200/vllm_kernels.py FOLDER      # resumes what FOLDER/kernels.db has
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from wastenot.devices.open import open_device
from wastenot.serving.model.engine_kernels import measure_kernels
from wastenot.study.store import open_study
from wastenot.sweeping.point import PointOptions
from wastenot.workloads.serving_steps import StepShapes


def main(folder: Path) -> None:
    """Measure the kernels of such steps by themselves, at the card's own clocks."""
    shapes = StepShapes.up_to(8192, 256, 2048)
    edges = 64, 128, 192, 256, 384, 512, 640, 768, 1024, 1536, 2048  # of tiles
    shapes = replace(
        shapes,
        product_tokens=(1, 16, 32, *(each + over for each in edges for over in (0, 1)), 3072, 4096, 6144, 8192),
        sequences=(1, 4, 8, 16, 32, 64, 128, 192, 256),
        context=(1, 512, 1024, 2048),
        prompt_tokens=(1, 64, 128, 256, 384, 512, 1024, 2048, 4096, 8192),
        past_tokens=(0, 2048),
    )
    study, options = open_study(folder / "kernels.db", create=True), PointOptions(warm_up_s=0.3, window_s=0.7)
    measure_kernels(open_device("nvidia:0"), "llama-8b", study, shapes=shapes, core_step_mhz=None, options=options)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

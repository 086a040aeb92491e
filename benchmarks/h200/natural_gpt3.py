"""Every kernel of a workload alone and beside products, by fixed programmes, to estimate from. Only reads the GPU's state.

    WASTENOT_READ_ONLY=1 python benchmarks/h200/natural_gpt3.py OUT.npz [DEVICE [SECONDS [WORKLOAD]]]

`wastenot natural` chooses its programmes by what is missing; these are the same for every kernel, to compare cards with.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from typing import Any

import numpy as np
from natural_probe import product, saved

from wastenot.devices.open import open_device
from wastenot.devices.timeline import REST, Phase, Subject
from wastenot.workloads.build import build_workload

LIGHT = {
    "alone": [Phase(0, 1.1)],
    "wakes": [phase for _ in range(4) for phase in (Phase(1, 0.15), Phase(0, 0.22))],
    "slow": [phase for _ in range(26) for phase in (Phase(1, 0.012), Phase(0, 0.022))],
    "quick": [phase for _ in range(40) for phase in (Phase(1, 0.004), Phase(0, 0.014))],
}
HEAVY = {
    "alone": [Phase(0, 2.6)],
    "rushes": [phase for _ in range(4) for phase in (Phase(REST, 0.2), Phase(0, 0.06))],
}


def main(out: str, name: str = "nvidia:0", seconds: str = "300", workload: str = "gpt3-xl") -> None:
    began = time.perf_counter()
    device = open_device(name)
    recorder = device.timelines()
    found: dict[str, Any] = {}
    notes: dict[str, Any] = {"gpu": device.identity.label, "driver": device.identity.driver, "workload": workload,
                             "channels": [asdict(channel) for channel in recorder.channels],
                             "stamps": asdict(recorder.stamps), "runs": []}  # fmt: skip
    with recorder.prepare([Subject(product())]) as prepared:
        prepared.run([Phase(0, 8.0)])
    kernels = build_workload(workload).kernels
    for kernel in sorted(kernels, key=lambda kernel: kernel.op == "gemm"):
        if time.perf_counter() - began > float(seconds):
            break
        heavy = kernel.op == "gemm"
        subjects = [Subject(kernel)] if heavy else [Subject(kernel), Subject(product())]
        took = time.perf_counter()
        with recorder.prepare(subjects) as prepared:
            prepare_s = time.perf_counter() - took
            for programme, phases in (HEAVY if heavy else LIGHT).items():
                timeline = prepared.run(phases)
                number = len(notes["runs"])
                notes["runs"].append({"kernel": kernel.name, "programme": programme, "how": prepared.how,
                                      "subjects": [[subject.kernel.name, subject.data] for subject in subjects],
                                      "call_s": prepared.call_s, "shared": timeline.shared})  # fmt: skip
                found |= {f"{number} {key}": value for key, value in saved(timeline).items()}
        mhz = timeline.core_mhz[timeline.subject == 0]
        print(
            f"{time.perf_counter() - began:5.0f} {kernel.name} {prepare_s:.1f} s, {mhz.min():.0f}-{mhz.max():.0f} MHz",
            flush=True,
        )
    np.savez_compressed(out, notes=np.array(json.dumps(notes)), **found)


if __name__ == "__main__":
    main(*sys.argv[1:])

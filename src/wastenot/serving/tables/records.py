"""What a study keeps of a server: its operating points, each with latencies and energy, however they came to be known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from wastenot.core.setting import AUTO, Setting

PointEvidence = Literal["measured", "simulated", "forecast"]
LATENCIES = ("itl", "ttft", "end_to_end")
"""Names of the latencies of a point."""


@dataclass(frozen=True, slots=True)
class Percentiles:
    """How a latency is distributed, in seconds; ``None`` where that is not known."""

    mean_s: float | None = None
    p50_s: float | None = None
    p90_s: float | None = None
    p95_s: float | None = None
    p99_s: float | None = None


@dataclass(frozen=True, slots=True)
class ServingPoint:
    """A server in its steady state at one batch size and setting.

    Attributes:
        model: served, such as ``meta-llama/Llama-3.1-8B-Instruct``.
        gpu: such as ``H100``.
        gpus: of the engine.
        task: or load, such as ``lm-arena-chat`` or the name of a trace.
        max_running: requests that were to be in the batch; where they arrive at a rate, the most that were at once.
        mean_running: requests that were, on average; ``None`` where it was not seen.
        energy_per_token_j: energy of all GPUs for each token made, in the steady state; ``None`` where no meter was read.
        power_w: mean of all GPUs; ``None`` where no meter was read.
        tokens_per_s: made, all requests together.
        output_tokens: mean of a request; ``None`` where it is not known.
        itl: time between two tokens.
        ttft: time to the first token.
        end_to_end: time from arrival to the last token.
        setting: of the GPUs.
        tensor_parallel: with ``expert_parallel`` and ``data_parallel`` how the GPUs share the work.
        expert_parallel: see there.
        data_parallel: see there.
        precision: of the weights, such as ``bfloat16``.
        steady_s: how long the steady state was watched; ``None`` where it is not known.
        evidence: whether the numbers are measured, simulated or forecast.
        source: where they come from: a URL of a server, a file.
        energy_per_token_se_j: standard error of ``energy_per_token_j``, where known.
        rate_per_s: requests that arrived in a second; ``None`` where ``max_running`` were kept running.
        why_unstable: why this is no steady state to rely on; empty where it is one.
        notes: caveats for the reader.
        server: means over the steady state of what the server says of itself, by the names it uses.
    """

    model: str
    gpu: str
    gpus: int
    task: str
    max_running: int
    mean_running: float | None
    energy_per_token_j: float | None
    power_w: float | None
    tokens_per_s: float
    output_tokens: float | None
    itl: Percentiles
    ttft: Percentiles = Percentiles()
    end_to_end: Percentiles = Percentiles()
    setting: Setting = AUTO
    tensor_parallel: int = 1
    expert_parallel: int = 1
    data_parallel: int = 1
    precision: str = ""
    steady_s: float | None = None
    evidence: PointEvidence = "measured"
    source: str = ""
    energy_per_token_se_j: float | None = None
    rate_per_s: float | None = None
    why_unstable: str = ""
    notes: tuple[str, ...] = ()
    server: tuple[tuple[str, float], ...] = ()

    @property
    def is_stable(self) -> bool:
        """Whether it is a steady state to rely on."""
        return not self.why_unstable

    @property
    def beside_idle_gpu(self) -> bool:
        """Whether its energy is that of a simulated GPU, which no server runs on."""
        return self.evidence == "simulated"

    @property
    def energy_per_request_j(self) -> float | None:
        """Energy of a request of mean length."""
        if self.output_tokens is None or self.energy_per_token_j is None:
            return None
        return self.energy_per_token_j * self.output_tokens

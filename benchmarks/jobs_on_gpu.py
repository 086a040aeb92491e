"""A job that comes back, on a real GPU: a small GPT learns Python's own standard library, and wastenot its batch size.

    WASTENOT_READ_ONLY=1 PYTHONPATH=src:build/site python -m benchmarks.jobs_on_gpu OUT.json --recurrences 60 --at-most 560
    python -m benchmarks.jobs_on_gpu OUT.json --smoke          # a minute on a CPU

The data is real, and wherever Python is: the sources of its standard library, byte by byte, one file in twenty held out. A
run trains from new random weights until the loss of what was held out is at the target. Only batch sizes are chosen; clocks
and limits are left alone, so nothing but reading the energy counter touches the card.

    1  recur      the job comes back under ``wn.job``, which chooses the batch size, stops runs, and keeps a study
    2  judge      every batch size in turn, several times, under no policy: which is the best, and what regret was

The second part comes last and the first knows nothing of it; it takes a fixed part of the time.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import platform
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import wastenot
from wastenot.core.version import own_version
from wastenot.jobs.tables.records import JobTerms
from wastenot.jobs.tables.store import JobStore
from wastenot.study.store import open_study

JOB = "gpt-on-the-standard-library"
MOST_TRIES = 20
JUDGED_PART = 0.4
"""Of the time, for part 2."""


@dataclass(frozen=True, slots=True)
class Size:
    """How large everything is.

    Attributes:
        width: of the model.
        layers: of the model.
        heads: of its attention.
        context: bytes that it sees.
        epoch_bytes: trained on in an epoch.
        held_out: sequences that the loss is of.
        batch_sizes: to choose among, in sequences.
        default: one of them, large as users' are who fill the card.
        learning_rate: at the default, scaled by the square root of the batch size.
        warm_up_bytes: over which the learning rate rises.
        max_epochs: of a run.
        target: loss that ends a run, in nats a byte.
    """

    width: int = 256
    layers: int = 4
    heads: int = 4
    context: int = 256
    epoch_bytes: int = 1 << 20
    held_out: int = 256
    batch_sizes: tuple[int, ...] = (32, 64, 128, 256, 512, 1024)
    default: int = 512
    learning_rate: float = 2.8e-3
    warm_up_bytes: int = 5 << 17
    max_epochs: int = 120
    target: float = 1.3


SMOKE = Size(
    32, 1, 2, 32, 1 << 14, 32, batch_sizes=(4, 16, 64), default=4, learning_rate=3e-3, warm_up_bytes=1 << 12, max_epochs=40,
    target=2.5,
)  # fmt: skip


class Block(nn.Module):
    """A layer of the model."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.norm_1, self.norm_2 = nn.LayerNorm(size.width), nn.LayerNorm(size.width)
        self.qkv, self.mix = nn.Linear(size.width, 3 * size.width), nn.Linear(size.width, size.width)
        self.up, self.down = nn.Linear(size.width, 4 * size.width), nn.Linear(4 * size.width, size.width)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Attention, and a perceptron."""
        batch, length, width = rows.shape
        parts = self.qkv(self.norm_1(rows)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        rows = rows + self.mix(seen.transpose(1, 2).reshape(batch, length, width))
        return rows + self.down(functional.gelu(self.up(self.norm_2(rows))))


class SmallGpt(nn.Module):
    """Predicts the next byte."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.bytes, self.places = nn.Embedding(256, size.width), nn.Embedding(size.context, size.width)
        self.layers = nn.Sequential(*(Block(size) for _ in range(size.layers)))
        self.norm, self.head = nn.LayerNorm(size.width), nn.Linear(size.width, 256)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Mean loss in nats per byte; ``rows`` has one byte more than the context."""
        inputs, wanted = rows[:, :-1], rows[:, 1:]
        places = torch.arange(inputs.shape[1], device=rows.device)
        logits = self.head(self.norm(self.layers(self.bytes(inputs) + self.places(places))))
        loss: torch.Tensor = functional.cross_entropy(logits.flatten(0, 1).float(), wanted.flatten())
        return loss


@dataclass(frozen=True, slots=True)
class Text:
    """The standard library's sources.

    Attributes:
        train: to learn from, as bytes on the device.
        held_out: sequences that are never learned from.
        what: for the record.
    """

    train: torch.Tensor
    held_out: torch.Tensor
    what: dict[str, Any]


def read_text(size: Size, device: str) -> Text:
    """The sources of this Python's standard library, one file in twenty held out by its name's hash."""
    root = Path(sysconfig.get_paths()["stdlib"])
    parts: dict[bool, list[bytes]] = {False: [], True: []}
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if any(part in ("site-packages", "dist-packages", "test", "tests", "idlelib") for part in name.split("/")):
            continue
        with suppress(OSError):
            parts[hashlib.sha256(name.encode()).digest()[0] % 20 == 0].append(path.read_bytes())
    train, held_out = (b"".join(parts[each]) for each in (False, True))
    what = {
        "files": sum(map(len, parts.values())), "train_bytes": len(train), "held_out_bytes": len(held_out),
        "sha256": hashlib.sha256(train + held_out).hexdigest(),
    }  # fmt: skip
    tensors = [torch.frombuffer(bytearray(each), dtype=torch.uint8).to(device) for each in (train, held_out)]
    starts = torch.linspace(0, len(held_out) - size.context - 1, size.held_out, device=device).long()
    return Text(tensors[0], rows_at(tensors[1], starts, size.context), what)


def rows_at(text: torch.Tensor, starts: torch.Tensor, context: int) -> torch.Tensor:
    """Sequences of a text; shape (starts, context + 1)."""
    return text[starts[:, None] + torch.arange(context + 1, device=text.device)].long()


def losses(text: Text, size: Size, batch_size: int, learning_rate: float, seed: int) -> Iterator[float]:
    """Train from new weights; yields the loss of what is held out after each epoch, without end."""
    device = text.train.device.type
    torch.manual_seed(seed)
    model = SmallGpt(size).to(device)
    optimizer = torch.optim.AdamW(
        model.parameters(), learning_rate, betas=(0.9, 0.95), weight_decay=0.1, fused=device == "cuda"
    )
    drawn = torch.Generator(device).manual_seed(seed)
    step_bytes = batch_size * size.context
    steps = max(size.epoch_bytes // step_bytes, 1)
    seen = 0
    while True:
        model.train()
        for _ in range(steps):
            seen += step_bytes
            optimizer.param_groups[0]["lr"] = learning_rate * min(1.0, seen / size.warm_up_bytes)
            starts = torch.randint(len(text.train) - size.context - 1, (batch_size,), device=device, generator=drawn)
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                loss = model(rows_at(text.train, starts, size.context))
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        model.eval()
        with torch.no_grad(), torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            parts = [model(part) for part in text.held_out.split(64)]
        yield float(torch.stack(parts).mean())  # waits for the GPU


@dataclass(frozen=True, slots=True)
class Record:
    """What the program writes.

    Attributes:
        provenance: machine, versions, data, sizes.
        target: loss that ends a run.
        terms: of the job, as it was kept.
        runs: of the job, each with its recurrence, and why its batch size was chosen.
        judged: runs of each batch size under no policy, of the study's own kind.
    """

    provenance: dict[str, Any]
    target: float
    terms: dict[str, Any]
    runs: list[dict[str, Any]]
    judged: list[dict[str, Any]]


def job_runs(path: Path, name: str) -> tuple[JobTerms, list[dict[str, Any]]]:
    """Terms of a job, and its runs as the study has them."""
    stored = JobStore(open_study(str(path))).read(name)
    runs = [{**asdict(run), "why": why} for run, why in zip(stored.runs, stored.why, strict=True)]
    return stored.terms, runs


class Bench:
    """The job on one device.

    Args:
        size: of everything.
        device: for PyTorch.
        study: file.
        eta: weight of energy against time; ``None`` as wastenot has it.
    """

    def __init__(self, size: Size, device: str, study: Path, eta: float | None) -> None:
        self.size, self.device, self.study = size, device, study
        self.text = read_text(size, device)
        self.common: dict[str, Any] = {
            "study": str(study), "higher_is_better": False, "max_epochs": size.max_epochs, "settings": "none", "eta": eta,
            "device": "cpu" if device == "cpu" else "nvidia:0", "learning_rate_scaling": "square root",
        }  # fmt: skip

    def warm_up(self) -> None:
        """Run each batch size for an epoch, so that what a process does once is in no run."""
        for batch_size in self.size.batch_sizes:
            next(losses(self.text, self.size, batch_size, self.size.learning_rate, seed=0))

    def run(self, target: float, seed: int) -> str:
        """A run of the job; returns what became of it."""
        size = self.size
        with wastenot.job(
            JOB, batch_sizes=size.batch_sizes, default=size.default, target=target, seed=17, **self.common
        ) as run:
            for loss in losses(self.text, size, run.batch_size, run.learning_rate(size.learning_rate), seed):
                if not run.epoch(loss):
                    break
        return run.outcome

    def judge(self, target: float, batch_size: int, seed: int) -> None:
        """A run of a batch size to its end, as a job of its own that has no other choice."""
        rate = self.size.learning_rate * math.sqrt(batch_size / self.size.default)
        common = {**self.common, "learning_rate_scaling": "none"}
        name = f"{JOB}, always {batch_size}"
        with wastenot.job(name, batch_sizes=[batch_size], default=batch_size, target=target, **common) as run:
            for loss in losses(self.text, self.size, batch_size, rate, seed):
                if not run.epoch(loss) and run.outcome != "stopped":
                    break


def provenance(size: Size, device: str, text: Text) -> dict[str, Any]:
    """Where the numbers come from."""
    found: dict[str, Any] = {
        "began": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()), "wastenot": own_version(),
        "torch": torch.__version__, "python": platform.python_version(), "text": text.what, "size": asdict(size),
        "parameters": sum(each.numel() for each in SmallGpt(size).parameters()), "device": platform.processor() or "CPU",
        "command": sys.argv[1:],
    }  # fmt: skip
    if device == "cuda":
        from wastenot.devices.open import open_device

        identity = open_device("nvidia:0").identity
        found |= {
            "device": identity.label,
            "driver": identity.driver,
            "cuda": torch.version.cuda,
            "unique_id": identity.unique_id,
        }
    return found


def measure(options: argparse.Namespace) -> None:
    """Both parts; what is known so far is written again and again, as a time limit may end it at any moment."""
    size = SMOKE if options.smoke else Size()
    device = "cpu" if options.smoke or not torch.cuda.is_available() else "cuda"
    if device == "cpu":
        torch.set_num_threads(1)
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(size, device, options.study or Path(folder) / "jobs.db", options.eta)
        bench.warm_up()
        target = options.target or size.target
        record = Record(provenance(size, device, bench.text), target, {}, [], [])
        first_ends_s = began_s + options.at_most * (1.0 - JUDGED_PART)
        recurrence_of: list[int] = []
        for recurrence in range(options.recurrences):
            if time.monotonic() > first_ends_s:
                break
            for attempt in range(MOST_TRIES):
                outcome = bench.run(target, seed=recurrence * MOST_TRIES + attempt)
                recurrence_of.append(recurrence)
                if outcome == "reached" or time.monotonic() > first_ends_s:
                    break
            terms, runs = job_runs(bench.study, JOB)
            runs = [{**run, "recurrence": each} for run, each in zip(runs, recurrence_of, strict=True)]
            record = replace(record, terms=asdict(terms), runs=runs)
            say(line_of(recurrence, runs))
            write(record, options.out)
        ends_s = began_s + options.at_most
        slowest_s = 0.0
        for seed in range(2_000_000, 2_000_000 + options.judgements):
            for batch_size in size.batch_sizes:
                now_s = time.monotonic()
                if now_s + slowest_s > ends_s:
                    return
                bench.judge(target, batch_size, seed)
                slowest_s = max(slowest_s, time.monotonic() - now_s)
                run = job_runs(bench.study, f"{JOB}, always {batch_size}")[1][-1]
                record = replace(record, judged=[*record.judged, run])
                write(record, options.out)


def line_of(recurrence: int, runs: list[dict[str, Any]]) -> str:
    """A recurrence in a line."""
    parts = [
        f"{run['batch_size']} {run['outcome']} {run['epochs']} epochs" for run in runs if run["recurrence"] == recurrence
    ]
    seconds = math.fsum(run["time_s"] for run in runs if run["recurrence"] == recurrence)
    joules = math.fsum(run["energy_j"] or 0.0 for run in runs if run["recurrence"] == recurrence)
    return f"recurrence {recurrence + 1}: {', '.join(parts)}; {seconds:.2f} s, {joules:.0f} J"


def write(record: Record, out: Path) -> None:
    """Write all that is known."""
    out.write_text(json.dumps(asdict(record), indent=1) + "\n")


def say(line: str) -> None:
    """To whoever waits."""
    print(line, flush=True)


def main(arguments: list[str] | None = None) -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="JSON file")
    parser.add_argument("--recurrences", type=int, default=60, help="how often the job comes back")
    parser.add_argument("--judgements", type=int, default=8, help="runs of each batch size under no policy, at most")
    parser.add_argument("--at-most", type=float, default=560.0, metavar="S", help="seconds that all of it may take")
    parser.add_argument("--target", type=float, help="loss that ends a run, in nats a byte")
    parser.add_argument("--eta", type=float, help="weight of energy against time")
    parser.add_argument("--study", type=Path, help="file to keep; by default none is")
    parser.add_argument("--smoke", action="store_true", help="a small one on the CPU")
    measure(parser.parse_args(arguments))


if __name__ == "__main__":
    main()

"""A simulated engine that publishes its steps as SGLang and Dynamo do: ``python -m testbed.forward_passes ADDRESS FILE``."""

import sys
import time

import msgpack
import numpy as np
import zmq

SCHEDULED = (
    "num_prefill_requests", "sum_prefill_tokens", "sum_prefill_kv_tokens", "num_decode_requests", "sum_decode_kv_tokens",
)  # fmt: skip


def metrics(wall_s, counts=(0, 0, 0, 0, 0), *, number=0, worker="worker-7", rank=0, version=1):
    """The map of one forward pass, with all names that SGLang and Dynamo give; an older Dynamo has no version."""
    scheduled = dict(zip(SCHEDULED, counts, strict=True)) | {"var_prefill_length": 0.0, "var_decode_kv_tokens": 12.5}
    queued = {
        "num_prefill_requests": 1, "sum_prefill_tokens": 90, "var_prefill_length": 0.0, "num_decode_requests": 0,
        "sum_decode_kv_tokens": 0, "var_decode_kv_tokens": 0.0,
    }  # fmt: skip
    found = {
        "version": version, "worker_id": worker, "dp_rank": rank, "counter_id": number, "wall_time": wall_s,
        "scheduled_requests": scheduled, "queued_requests": queued,
    }  # fmt: skip
    return {name: value for name, value in found.items() if value is not None and (version or name != "counter_id")}


def message(number, found):
    """The frames of a message."""
    return (b"", number.to_bytes(8, "big"), msgpack.packb(found))


def steps(engine, *, overhead_s=0.004, prefill=1.3, decode=1.2, core_mhz=None, noise=0.02, seed=0):
    """Steps of an engine that differs from its profile, without end: their time, and what was scheduled in them."""
    rng, tables = np.random.default_rng(int(seed)), engine.tables
    at = [each.core_mhz for each in tables.settings].index(core_mhz) if core_mhz else len(tables.settings) - 1
    while True:
        new = int(rng.integers(16, 512)) if rng.random() < 0.3 else 0
        made = 0 if new and rng.random() < 0.3 else int(rng.integers(1, 64))
        cached = made * int(rng.integers(100, 4000))
        together = prefill * tables.prefill(at, max(new + made, 1)).time_s
        full = decode * tables.decode(at, max(made, 1), cached / made if made else 100.0).time_s
        empty = decode * tables.decode(at, max(made, 1), tables.context_tokens[0]).time_s
        wall_s = full if not new else max(together, empty) + full - empty if made else together
        wall_s = (overhead_s + wall_s) * float(np.exp(noise * rng.standard_normal()))
        yield wall_s, (int(new > 0), new, 0, made, cached)


def publish(address, engine, *, speed=10.0, rank=0, first=0, spoil=lambda number, frames: [frames], **more):
    """Publish the steps of an engine, and heartbeats between them, faster than they ran; without end.

    Args:
        address: to bind.
        engine: whose steps they are.
        speed: times that of the engine.
        rank: of data parallelism.
        first: sequence number.
        spoil: what to send instead of the frames of a message.
        more: of :func:`steps`.
    """
    socket = zmq.Context().socket(zmq.PUB)
    socket.bind(address)
    due_s, number = time.monotonic(), first
    for wall_s, counts in steps(engine, **more):
        found = metrics(wall_s, counts, number=number, rank=rank)
        for frames in spoil(number, message(number, found)):
            socket.send_multipart(frames)
        number += 1
        if number % 50 == 0:
            socket.send_multipart(message(number, metrics(0.0, number=number, rank=rank)))
            number += 1
        due_s += wall_s / speed
        time.sleep(max(due_s - time.monotonic(), 0.0))


if __name__ == "__main__":
    from wastenot.serving.model.profile_file import read_engine

    publish(sys.argv[1], read_engine(sys.argv[2]).engine(), **{
        name: float(value) for name, value in (each.split("=") for each in sys.argv[3:])
    })  # fmt: skip

"""Ranks of a pipeline on this machine, as torchrun would start them."""

from __future__ import annotations

import os
import socket
from pathlib import Path


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


def environment(rank: int, ranks: int, port: int, folder: Path) -> dict[str, str]:
    """Of a rank."""
    own = {
        "RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WASTENOT_RUNTIME": str(folder / "run"),
        "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
    }  # fmt: skip
    return {name: value for name, value in os.environ.items() if name != "WASTENOT_APPLY"} | own

"""A training program on the CPU that knows nothing of wastenot: ``python training_job.py STEP_S [ITERATIONS]``.

It trains until the file ``enough`` is there, or so often. Only what it says takes time: it holds the stand-in's.
"""

import os
import sys
import time
from itertools import count
from pathlib import Path

import torch
from torch import nn

from testbed.stand_in.held_time import HeldTime

WIDTH = 16


class Layer(nn.Module):
    """A layer that takes its time."""

    def __init__(self, take):
        super().__init__()
        self.linear, self.take = nn.Linear(WIDTH, WIDTH), take

    def forward(self, rows):
        """Takes its time, and multiplies."""
        self.take()
        return torch.relu(self.linear(rows))


def main():
    """Train, and tell how often."""
    step_s, most = float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None
    torch.set_num_threads(1)
    now = HeldTime(os.environ["STAND_IN_NVML"])
    time.monotonic, time.sleep = now.monotonic, now.sleep  # also for whoever looks on from other threads
    layers = nn.Sequential(*(Layer(lambda: now.let_pass(step_s / 8)) for _ in range(2)))
    model = nn.Sequential(nn.Embedding(50, WIDTH), layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    tokens = torch.randint(0, 50, (4, 8))
    print("training", "sitecustomize" in sys.modules, flush=True)
    steps = 0
    for _ in count() if most is None else range(most):
        if Path("enough").exists():
            break
        loss = model(tokens).square().mean()
        now.let_pass(step_s / 8)
        loss.backward()
        now.let_pass(step_s * 5 / 8)
        optimizer.step()
        optimizer.zero_grad()
        steps += 1
    now.close()
    print(steps, flush=True)


if __name__ == "__main__":
    main()

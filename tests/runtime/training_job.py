"""A training program on the CPU that knows nothing of wastenot: ``python training_job.py SECONDS STEP_S [WIDTH]``."""

import sys
import time

import torch
from torch import nn


class Layer(nn.Module):
    """A layer that takes its time."""

    def __init__(self, width, step_s):
        super().__init__()
        self.linear, self.step_s = nn.Linear(width, width), step_s

    def forward(self, rows):
        """Waits, and multiplies."""
        time.sleep(self.step_s / 8)
        return torch.relu(self.linear(rows))


def main():
    """Train, and tell how often."""
    seconds, step_s = float(sys.argv[1]), float(sys.argv[2])
    width = int(sys.argv[3]) if len(sys.argv) > 3 else 16
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Embedding(50, width), nn.Sequential(*(Layer(width, step_s) for _ in range(2))))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    tokens = torch.randint(0, 50, (4, 8))
    print("training", "sitecustomize" in sys.modules, flush=True)
    steps, end_s = 0, time.monotonic() + seconds
    while time.monotonic() < end_s:
        loss = model(tokens).square().mean()
        time.sleep(step_s / 8)
        loss.backward()
        time.sleep(step_s * 5 / 8)
        optimizer.step()
        optimizer.zero_grad()
        steps += 1
    print(steps, flush=True)


if __name__ == "__main__":
    main()

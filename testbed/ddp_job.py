"""A rank of a DDP job on CPUs, of which one is faster: ``torchrun --nproc-per-node 2 ddp_job.py STEP_S``.

Each takes its time until the backward pass, the second rank a fifth less. It then waits for the other before gradients are
reduced, as a GPU does within the all-reduce: only what it says takes time, and all ranks hold the stand-in's together.
"""

import os
import sys
import time
from itertools import count
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from testbed.stand_in.held_time import HeldTime

WIDTH = 16


class Wait(torch.autograd.Function):
    """In the backward pass, takes as long as is left."""

    @staticmethod
    def forward(context, rows, wait):
        """Changes nothing."""
        context.wait = wait
        return rows.view_as(rows)

    @staticmethod
    def backward(context, gradient):
        """Waits; the gradients of all parameters are reduced together, afterwards."""
        context.wait()
        return gradient, None


class Model(nn.Module):
    """Two layers, whose forward pass takes its time."""

    def __init__(self, take, wait):
        super().__init__()
        self.first, self.second, self.take, self.wait = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), take, wait

    def forward(self, rows):
        """Takes its time."""
        self.take()
        return self.second(Wait.apply(self.first(rows), self.wait))


def main():
    """Train until the file ``enough`` is there."""
    step_s, rank = float(sys.argv[1]), int(os.environ["RANK"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    forward_s, loss_s = 0.28 * step_s * (0.8 if rank else 1.0), 0.17 * step_s
    dist.barrier()  # all hold the time before any lets it pass
    now = HeldTime(os.environ["STAND_IN_NVML"])
    dist.barrier()
    time.monotonic, time.sleep = now.monotonic, now.sleep
    model = DistributedDataParallel(
        Model(lambda: now.let_pass(forward_s), lambda: now.let_pass(step_s - loss_s - forward_s))
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    rows, enough = torch.randn(4, WIDTH), torch.zeros(1)
    for _ in count():
        loss = model(rows).square().mean()
        now.let_pass(loss_s)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        enough[0] = Path("enough").exists()
        dist.all_reduce(enough)
        if enough.item() > 0:
            break
    now.close()
    dist.destroy_process_group()
    print("trained", flush=True)


if __name__ == "__main__":
    main()

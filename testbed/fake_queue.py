"""A GPU's queue of launches on a clock that a test turns: its stream and its events."""

import contextlib

import torch

from wastenot.devices.torch import task_run


class FakeGpu:
    """A stream on which each launch takes 0.1 s of a clock that the test turns."""

    def __init__(self):
        self.now, self.ends, self.waited = 0.0, 0.0, 0

    def launch(self):
        self.ends = max(self.ends, self.now) + 0.1

    def synchronize(self):
        self.waited += 1
        self.now = max(self.now, self.ends)


class FakeEvent:
    made = 0

    def __init__(self):
        FakeEvent.made += 1

    def record(self, gpu):
        self.gpu, self.at = gpu, max(gpu.now, gpu.ends)

    def query(self):
        return self.gpu.now >= self.at

    def elapsed_time(self, other):
        return (other.at - self.at) * 1e3


def fake_queue(monkeypatch):
    """A stream, and what PyTorch's launches record on it."""
    FakeEvent.made = 0
    monkeypatch.setattr(task_run, "new_event", FakeEvent)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    return FakeGpu()

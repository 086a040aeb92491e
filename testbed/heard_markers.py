"""A session's driver that only hears what a program marks."""

from types import SimpleNamespace

from testbed.applied import summary
from wastenot.devices.common.wall_time import WallTime


class HeardMarkers:
    """Takes the markers that a controller would, and controls nothing."""

    def __init__(self):
        self.gpus = [SimpleNamespace(time=WallTime(), identity=SimpleNamespace(name="gpu", unique_id="GPU-1"))]
        self.markers = []

    def mark(self, marker):
        self.markers.append(marker)

    def status(self):
        return summary().status

    def due_s(self):
        return None

    def act(self, now_s):
        raise AssertionError("nothing is due")

    def end(self, now_s=None, *, ended="job ended", exit_code=None):
        return SimpleNamespace(model_copy=lambda update: ended)

    def names(self):
        return [marker.name for marker in self.markers]

    def iterations(self):
        return [marker.iteration for marker in self.markers if marker.name == "iteration"]

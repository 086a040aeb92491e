"""A vendor that does not exist: all that a vendor's package implements, of two cards whose clocks stand in a file.

``MADE_UP_GPUS`` names the file, so that what a process that was killed has set is seen by others. Whatever else its cards
do, a simulated GPU does.
"""

import json
import os
import re
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

from wastenot.core import vendors
from wastenot.core.errors import BadInputError
from wastenot.devices.common.control import clocks_of
from wastenot.devices.common.gpu_driver import Examined, NoSuchGpuError, ReadOnlyError, refusal
from wastenot.devices.open import open_device
from wastenot.devices.protocol import Identity

FILE = "MADE_UP_GPUS"
IDS = ("ACME-00aa-11", "ACME-00bb-22")
CLOCKS = {2000.0: (300.0, 900.0, 1500.0)}
DEFAULT = {"core": None, "memory": None, "power": 300.0}

VENDOR = vendors.Vendor(
    name="acme",
    label="Acme",
    models=re.compile("acme|rocket"),
    brands=frozenset({"acme"}),
    tool="acme-smi",
    commands=lambda words, card, setting: (f"acme-smi --card {card} --ceiling {setting.core_mhz:g}",),
    undo={"--ceiling": "--no-ceiling"},
    card_option="--card",
    lock="acme-smi --ceiling 1500",
    driver="testbed.made_up_gpus",
    id_prefix="ACME-",
    binding=("json", "acme-ml"),
    pci_id="0xacme",
    torch_build="acme",
    visible="ACME_VISIBLE",
)


def known():
    """Make the vendor known to this process; a test undoes it with ``monkeypatch``."""
    return (*vendors.VENDORS, VENDOR)


def state(unique_id):
    """What a card's clocks are set to."""
    path = Path(os.environ[FILE])
    found = json.loads(path.read_text()) if path.exists() else {}
    return DEFAULT | found.get(unique_id, {})


@contextmanager
def _changed(unique_id):
    path = Path(os.environ[FILE])
    found = json.loads(path.read_text()) if path.exists() else {}
    yield found.setdefault(unique_id, {})
    path.write_text(json.dumps(found))


# ---- the driver -------------------------------------------------------------------------------------------------


def version():
    return "1.0"


def count():
    return len(IDS)


def unique_id(index):
    return IDS[index]


def examine(index, torch_indices):
    return Examined(
        f"acme:{index}", "Acme Rocket", IDS[index], "Coyote", None, None, 2**30, 300.0, (100.0, 300.0),
        {memory: (cores[0], cores[-1], len(cores)) for memory, cores in CLOCKS.items()}, False, None, None, {}, None,
        torch_indices.get(vendors.bare_unique_id(IDS[index])),
    )  # fmt: skip


def open_gpu(name, *, allow_clock_control=False, restore=None):
    which = name.partition(":")[2]
    card = IDS[int(which)] if which in ("0", "1") else which
    if card not in IDS:
        raise BadInputError(f"device '{name}': there is no such GPU; this machine has acme:0, acme:1")
    like = open_device(f"sim:{Path(__file__).with_name('toy.toml')}", wall_time=True)
    clocks = clocks_of(clock_setter(card, allow_changes=allow_clock_control), restore)
    identity = Identity(name, "Acme Rocket", card, "driver 1.0", "measured", unique_name=False)
    return SimpleNamespace(identity=identity, time=like.time, clocks=clocks, sensors=like.sensors, launcher=like.launcher)


def clock_setter(unique_id, *, allow_changes):
    if unique_id not in IDS:
        raise NoSuchGpuError(f"{unique_id}: there is no such card")
    return Setter(unique_id, allow_changes)


class Setter:
    def __init__(self, unique_id, allow_changes):
        self.unique_id, self.allow_changes = unique_id, allow_changes

    def supported_clocks(self):
        return CLOCKS

    def power_limit_range_w(self):
        return 100.0, 300.0

    def power_limit_w(self):
        return state(self.unique_id)["power"]

    def default_power_limit_w(self):
        return DEFAULT["power"]

    def power_w(self):
        return 50.0

    def profiles(self):
        return None

    def is_needless(self, kind, value):
        return False

    def apply(self, kind, value):
        self._check()
        with _changed(self.unique_id) as card:
            card[kind] = value

    def restore(self, restore, kinds):
        self._check()
        wanted = {"core": restore.core_mhz, "memory": restore.memory_mhz, "power": restore.power_limit_w}
        with _changed(self.unique_id) as card:
            card.update({kind: wanted[kind] for kind in kinds & wanted.keys()})

    def _check(self):
        reason = refusal(self.allow_changes)
        if reason is not None:
            raise ReadOnlyError(reason)

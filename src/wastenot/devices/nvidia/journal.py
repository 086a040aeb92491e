"""A journal of changed clocks, on disk before anything changes, so that a GPU can be restored however the process dies.

A journal exists in the state folder, under the GPU's UUID, from before the first change until everything is undone. Its
owner is identified by process ID, start time and boot ID. While the owner lives, the journal is a lease that others must
wait for; once it is dead, the next command restores the GPU.

    no file ──create──▶ leased ──release──▶ no file
                          │ owner dies
                          ▼
                        stale ──claim──▶ NAME.claimed-PID ──restore──▶ no file
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from wastenot.errors import DeviceError
from wastenot.processes import boot_id, start_of

SCHEMA = "wastenot.clocks/1"


@dataclass(frozen=True, slots=True)
class Restore:
    """What a GPU is restored to. ``None`` resets to the default clocks.

    Attributes:
        core_mhz: range of locked core clocks, which NVML does not report and the user has to name.
        memory_mhz: range of locked memory clocks, also named by the user.
        power_limit_w: the limit before it was changed; ``None`` where it was not.
    """

    core_mhz: tuple[float, float] | None = None
    memory_mhz: tuple[float, float] | None = None
    power_limit_w: float | None = None

    @property
    def outcome(self) -> str:
        """What becomes of the clocks, in words."""
        named = [f"{bounds[0]:g}-{bounds[1]:g}" for bounds in (self.core_mhz, self.memory_mhz) if bounds is not None]
        return f"locked to {','.join(named)} MHz" if named else "reset to the driver's defaults"


@dataclass(frozen=True, slots=True)
class Journal:
    """A journal on disk.

    Attributes:
        path: the file.
        uuid: UUID of the GPU.
        owner: ID of the process that changed the clocks, or is restoring them.
        owner_alive: whether that process still runs.
        restore: what the GPU is to be restored to.
    """

    path: Path
    uuid: str
    owner: int
    owner_alive: bool
    restore: Restore


def state_folder() -> Path:
    """The folder of journals: ``WASTENOT_STATE``, else wastenot's folder in the user's XDG state directory."""
    named = os.environ.get("WASTENOT_STATE")
    if named:
        return Path(named)
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "wastenot"


def begin(uuid: str, restore: Restore) -> Path:
    """Write the journal of a GPU; it is on disk when this returns.

    Args:
        uuid: UUID of the GPU.
        restore: what it is to be restored to.

    Raises:
        DeviceError: there already is one, or it cannot be written; nothing may be changed then.
    """
    path = state_folder() / f"{uuid}.json"
    me = {"process": os.getpid(), "started": start_of(os.getpid()), "boot": boot_id()}
    text = json.dumps({"schema": SCHEMA, "uuid": uuid, "restore": asdict(restore)} | me)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("w") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        try:
            owner = _owner_of(uuid)
            if owner is None:
                with suppress(FileExistsError):
                    os.link(temporary, path)  # fails where one exists, so only one process gets the lease
                    _sync_folder(path.parent)
                    return path
                owner = _owner_of(uuid)
        finally:
            temporary.unlink()
    except OSError as error:
        raise DeviceError(f"{path}: cannot be written ({error.strerror}); clocks are not changed without it") from error
    holder = "another process" if owner is None else f"process {owner}"
    raise DeviceError(f"{uuid}: {holder} controls the clocks of this GPU; wait for it, or stop it")


def _owner_of(uuid: str) -> int | None:
    """ID of the process that controls a GPU's clocks or is restoring them."""
    return next((journal.owner for journal in journals() if journal.uuid == uuid), None)


def end(path: Path) -> None:
    """Remove a journal once everything is undone."""
    path.unlink(missing_ok=True)


def journals() -> tuple[Journal, ...]:
    """All journals, including those claimed by a process that is restoring the GPU.

    Raises:
        DeviceError: the folder or a journal cannot be read.
    """
    try:
        paths = sorted(path for path in state_folder().iterdir() if not path.name.startswith(".") and ".json" in path.name)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise DeviceError(f"{state_folder()}: journals of changed clocks cannot be read: {error.strerror}") from error
    return tuple(journal for journal in map(read, paths) if journal is not None)


def stale() -> tuple[Journal, ...]:
    """Journals of dead processes, whose changes have to be undone."""
    return tuple(journal for journal in journals() if not journal.owner_alive)


def claim(journal: Journal) -> Path | None:
    """Claim a stale journal so that only one process restores the GPU; ``None`` if another was faster."""
    base = journal.path.name.split(".claimed-", maxsplit=1)[0]
    own = journal.path.with_name(f"{base}.claimed-{os.getpid()}-{start_of(os.getpid())}")
    try:
        journal.path.rename(own)
    except FileNotFoundError:
        return None
    return own


def read(path: Path) -> Journal | None:
    """Read a journal; ``None`` if it has been removed meanwhile.

    Raises:
        DeviceError: it cannot be read, or is not a journal.
    """
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DeviceError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        document = json.loads(text)
        raw = document["restore"]
        core, memory = (_range(raw[key]) for key in ("core_mhz", "memory_mhz"))
        limit = None if raw["power_limit_w"] is None else float(raw["power_limit_w"])
        owner, started, boot = int(document["process"]), str(document["started"]), str(document["boot"])
        _, _, claimed = path.name.partition(".claimed-")
        if claimed:
            number, _, started = claimed.partition("-")
            owner = int(number)
        alive = boot == boot_id() and bool(started) and start_of(owner) == started
        return Journal(path, str(document["uuid"]), owner, alive, Restore(core, memory, limit))
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise DeviceError(
            f"{path}: is not a journal of changed clocks ({type(error).__name__}: {error}); reset the GPU's clocks by hand "
            "(nvidia-smi -rgc; nvidia-smi -rmc) and remove the file"
        ) from error


def _range(raw: list[float] | None) -> tuple[float, float] | None:
    return None if raw is None else (float(raw[0]), float(raw[1]))


def _sync_folder(folder: Path) -> None:
    with suppress(OSError):  # not all file systems support it
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

"""What was changed of a GPU, on disk before it is changed, so that it can be put right after any death of the process.

A journal lies in the state folder under the GPU's UUID from before the first change until all is given back. Its owner is
known by process number, start time and boot: one whose owner lives is a lease that others must wait for; one whose owner is
dead is put right by whoever comes next.

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

SCHEMA = "wastenot.clocks/1"


@dataclass(frozen=True, slots=True)
class Restore:
    """To what a GPU goes back. ``None`` is reset: the driver's own clocks.

    Attributes:
        core_mhz: range of locked core clocks, which NVML does not tell and somebody has to name.
        memory_mhz: likewise of memory clocks.
        power_limit_w: as read before it was changed; ``None`` where it was not changed.
    """

    core_mhz: tuple[float, float] | None = None
    memory_mhz: tuple[float, float] | None = None
    power_limit_w: float | None = None


@dataclass(frozen=True, slots=True)
class Journal:
    """A journal as it lies on disk.

    Attributes:
        path: of the file.
        uuid: of the GPU.
        owner: process number.
        owner_alive: whether that process still runs.
        restore: to what the GPU is to go back.
    """

    path: Path
    uuid: str
    owner: int
    owner_alive: bool
    restore: Restore


def state_folder() -> Path:
    """Where journals lie: ``WASTENOT_STATE``, else wastenot's folder among the user's state files."""
    named = os.environ.get("WASTENOT_STATE")
    if named:
        return Path(named)
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "wastenot"


def begin(uuid: str, restore: Restore) -> Path:
    """Write the journal of a GPU, on disk when this returns.

    Args:
        uuid: of the GPU.
        restore: to what it is to go back.

    Raises:
        DeviceError: there is one already, or it cannot be written; nothing may be changed then.
    """
    path = state_folder() / f"{uuid}.json"
    text = json.dumps({"schema": SCHEMA, "uuid": uuid, "restore": asdict(restore)} | _me())
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("w") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        try:
            taken = _owner_of(uuid)
            if taken is None:
                with suppress(FileExistsError):
                    os.link(temporary, path)  # fails if there is one: only one process gets the lease
                    _sync_folder(path.parent)
                    return path
                taken = _owner_of(uuid)
        finally:
            temporary.unlink()
    except OSError as error:
        raise DeviceError(f"{path}: cannot be written ({error.strerror}); clocks are not touched without it") from error
    whose = "another process" if taken is None else f"process {taken}"
    raise DeviceError(f"{uuid}: {whose} has the clocks of this GPU; wait for it, or stop it")


def _owner_of(uuid: str) -> int | None:
    """Who holds a GPU's clocks, or is putting them right."""
    return next((found.owner for found in journals() if found.uuid == uuid), None)


def end(path: Path) -> None:
    """All is given back."""
    path.unlink(missing_ok=True)


def journals() -> tuple[Journal, ...]:
    """All journals there are, whole or claimed by somebody who was putting them right."""
    try:
        paths = sorted(path for path in state_folder().iterdir() if not path.name.startswith(".") and ".json" in path.name)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise DeviceError(f"{state_folder()}: journals of changed clocks cannot be read: {error.strerror}") from error
    return tuple(found for found in map(read, paths) if found is not None)


def stale() -> tuple[Journal, ...]:
    """Journals of processes that are dead: what they changed has to be put right."""
    return tuple(journal for journal in journals() if not journal.owner_alive)


def claim(journal: Journal) -> Path | None:
    """Take a stale journal, so that one process puts it right and no other; ``None`` if somebody was faster."""
    base = journal.path.name.split(".claimed-", maxsplit=1)[0]
    own = journal.path.with_name(f"{base}.claimed-{os.getpid()}-{_start_of(os.getpid())}")
    try:
        journal.path.rename(own)
    except FileNotFoundError:
        return None
    return own


def read(path: Path) -> Journal | None:
    """A journal; ``None`` if it has gone meanwhile.

    Raises:
        DeviceError: it is not one.
    """
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DeviceError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        found = json.loads(text)
        raw = found["restore"]
        core, memory = (_range(raw[key]) for key in ("core_mhz", "memory_mhz"))
        limit = None if raw["power_limit_w"] is None else float(raw["power_limit_w"])
        owner, started, boot = int(found["process"]), str(found["started"]), str(found["boot"])
        _, _, claimed = path.name.partition(".claimed-")
        if claimed:
            number, _, started = claimed.partition("-")
            owner = int(number)
        alive = boot == _boot() and bool(started) and _start_of(owner) == started
        return Journal(path, str(found["uuid"]), owner, alive, Restore(core, memory, limit))
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise DeviceError(
            f"{path}: is not a journal of clocks ({type(error).__name__}: {error}); reset the GPU's clocks by hand "
            "(nvidia-smi -rgc; nvidia-smi -rmc) and remove the file"
        ) from error


def _range(raw: list[float] | None) -> tuple[float, float] | None:
    return None if raw is None else (float(raw[0]), float(raw[1]))


def _me() -> dict[str, object]:
    return {"process": os.getpid(), "started": _start_of(os.getpid()), "boot": _boot()}


def _start_of(process: int) -> str:
    """When a process began, in ticks since boot; empty if there is none. A zombie is dead."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in ("Z", "X") else fields[19]


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _sync_folder(folder: Path) -> None:
    with suppress(OSError):  # not all file systems can
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

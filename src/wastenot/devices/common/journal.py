"""A journal of changed clocks, on disk before anything changes, so that a GPU can be restored however the process dies.

A journal exists under the GPU's UUID from before the first change until everything is undone. Its owner holds a lock of the
kernel beside it. While it does, the journal is a lease that others must wait for; once the owner is dead, the next command
restores the GPU.

    no file ──lock, write──▶ leased ──restore, remove, unlock──▶ no file
                               │ owner dies: the kernel unlocks
                               ▼
                             stale ──lock──▶ claimed ──restore, remove, unlock──▶ no file

Root's journals are the machine's: they stand in ``/run/wastenotd``, which only root may enter. Who is not root keeps them
in the home folder. A journal counts only if nobody else can have written it: its file and its folder belong to root or to
the user who reads it, and others may write neither.
"""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from wastenot.core.errors import DeviceError
from wastenot.core.files import user_state_folder
from wastenot.core.processes import boot_id, process_space, start_of
from wastenot.devices.common import process_lock
from wastenot.devices.common.state_files import is_own, opened, read_bytes, temporary_of, write

SCHEMA = "wastenot.clocks/2"
MACHINE = Path("/run/wastenotd")
"""Where root's journals and a scheduler's rules for its jobs are; no container sees it that is not trusted as root."""


@dataclass(frozen=True, slots=True)
class Restore:
    """What a GPU is restored to. ``None`` resets to the default clocks.

    Attributes:
        core_mhz: range of locked core clocks, which drivers do not report and the user has to name.
        memory_mhz: range of locked memory clocks, also named by the user.
        power_limit_w: the limit before it was changed; ``None`` where it was not.
        profiles: the workload power profiles that were requested; ``None`` where the GPU has none.
    """

    core_mhz: tuple[float, float] | None = None
    memory_mhz: tuple[float, float] | None = None
    power_limit_w: float | None = None
    profiles: tuple[str, ...] | None = None

    @property
    def outcome(self) -> str:
        """What becomes of the clocks, in words."""
        named = [f"{bounds[0]:g}-{bounds[1]:g}" for bounds in (self.core_mhz, self.memory_mhz) if bounds is not None]
        return f"locked to {','.join(named)} MHz" if named else "reset to the driver's defaults"


@dataclass(frozen=True, slots=True)
class Holder:
    """Who controls a GPU's clocks.

    Attributes:
        process: ID of the process, as it is known where the journal was written; 0 where it is not known.
        user: ID of its user.
        through_daemon: whether wastenotd sets the clocks for it.
        here: whether the process ID means the same process here.
    """

    process: int
    user: int
    through_daemon: bool = False
    here: bool = True

    def __str__(self) -> str:
        try:
            user = pwd.getpwuid(self.user).pw_name
        except (KeyError, OverflowError):
            user = str(self.user)
        where = "" if self.here else " in another container"
        process = f"process {self.process}" if self.process else "an unknown process"
        return f"{process}{where} (user {user}{', through wastenotd' if self.through_daemon else ''})"


@dataclass(frozen=True, slots=True)
class Journal:
    """A journal on disk.

    Attributes:
        path: the file.
        uuid: UUID of the GPU.
        holder: who changed the clocks, or is restoring them.
        owner_alive: whether the process that wrote the journal still runs.
        restore: what the GPU is to be restored to.
        user: ID of the user whose file it is.
        changed: kinds of a setting that are known to have been changed.
        failed: why the last attempt to restore it failed; ``None`` where there was none.
        kept: kinds of a setting that its owner may not change, so that they are not restored either.
        unreadable: why it cannot be understood; the GPU's clocks are then anything, and reset to the driver's defaults.
        this_boot: whether the machine has run since; else nothing of it can be in force any more.
    """

    path: Path
    uuid: str
    holder: Holder
    owner_alive: bool
    restore: Restore
    user: int
    changed: frozenset[str] = frozenset()
    failed: str | None = None
    kept: frozenset[str] = frozenset()
    unreadable: str | None = None
    this_boot: bool = True

    @property
    def owner(self) -> int:
        """ID of the process that changed the clocks."""
        return self.holder.process

    @property
    def remedy(self) -> str:
        """What to do once its owner is dead."""
        mine = self.user == os.geteuid()
        return "run wastenot device reset" if mine else "ask an administrator to run wastenot device reset as root"

    @property
    def outcome(self) -> str:
        """What becomes of the clocks when the GPU is recovered, in words."""
        return self.restore.outcome if self.this_boot else "left as they are: the machine has been started again since"

    @property
    def restorable(self) -> bool:
        """Whether its owner is dead and this user may restore the GPU: the file is its own."""
        return not self.owner_alive and self.user == os.geteuid()


def state_folder() -> Path:
    """The folder of new journals: ``WASTENOT_STATE``; else the machine's for root, and for others the user's own."""
    return folders()[0]


def folders() -> tuple[Path, ...]:
    """All folders that may hold journals, that of new ones first."""
    named = os.environ.get("WASTENOT_STATE")
    if named:
        return (Path(named),)
    own = user_state_folder()
    return (MACHINE, own) if os.geteuid() == 0 else (own, MACHINE)


def begin(uuid: str, restore: Restore, client: Holder | None = None, kept: Iterable[str] = ()) -> Path:
    """Write the journal of a GPU and take its lease; it is on disk when this returns.

    Args:
        uuid: UUID of the GPU.
        restore: what it is to be restored to.
        client: on whose behalf the clocks are set, where that is not this process.
        kept: kinds of a setting that are not changed.

    Raises:
        DeviceError: there already is one, or it cannot be written; nothing may be changed then.
    """
    path = state_folder() / f"{uuid}.json"
    me = {"process": os.getpid(), "user": os.getuid(), "started": start_of(os.getpid())}
    where = {"boot": boot_id(), "space": process_space()}
    other = {} if client is None else {"client": {"process": client.process, "user": client.user}}
    text = json.dumps(
        {"schema": SCHEMA, "uuid": uuid, "restore": asdict(restore), "kept": sorted(kept)} | me | where | other
    )
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        before = _of(uuid)  # while the lock still says whether its owner lives
        taken = process_lock.take(_lock_of(path))
        try:
            there = _of(uuid)
            if taken and there is None:
                _write(path, text)
                taken = False  # from here on it is the journal's
                return path
        finally:
            if taken:
                process_lock.give_back(_lock_of(path))
    except OSError as error:
        raise DeviceError(f"{path}: cannot be written ({error.strerror}); clocks are not changed without it") from error
    there = there and (before or there)
    if there is not None and not there.owner_alive:
        raise DeviceError(f"{uuid}: its clocks were left changed by {there.holder}, which is dead: {there.remedy}")
    holder = "another process" if there is None else there.holder
    raise DeviceError(f"{uuid}: {holder} controls the clocks of this GPU; wait for it, or stop it")


def _of(uuid: str) -> Journal | None:
    return next((journal for journal in journals() if journal.uuid == uuid), None)


def note(path: Path, **fields: object) -> None:
    """Add fields to a journal of this process.

    Raises:
        DeviceError: it cannot be written.
    """
    try:
        with opened(path.parent) as folder:
            document = json.loads(read_bytes(folder, path.name)[0])
        _write(path, json.dumps(document | fields))
    except (OSError, ValueError) as error:
        raise DeviceError(f"{path}: cannot be written: {error}") from error


def end(path: Path) -> None:
    """Remove a journal once everything is undone, and give back its lease."""
    path.unlink(missing_ok=True)
    temporary_of(path).unlink(missing_ok=True)  # of a process that was killed while it wrote
    process_lock.give_back(_lock_of(path))


def journals() -> tuple[Journal, ...]:
    """All journals, including those of processes that are restoring a GPU, and those that cannot be understood.

    Raises:
        DeviceError: a folder cannot be read.
    """
    found = (read(path) for folder in folders() for path in _files(folder))
    return tuple(journal for journal in found if journal is not None)


def stale() -> tuple[Journal, ...]:
    """Journals of dead processes, whose changes this user has to undo."""
    return tuple(journal for journal in journals() if journal.restorable)


def claim(journal: Journal) -> Journal | None:
    """Claim a stale journal so that only one process restores the GPU, and read it again; ``None`` if another was faster."""
    if not process_lock.take(_lock_of(journal.path)):
        return None
    try:
        current = read(journal.path)
    except BaseException:
        disclaim(journal.path)
        raise
    if current is None:
        disclaim(journal.path)
    return current


def disclaim(path: Path) -> None:
    """Give up a claim; the journal stays."""
    process_lock.give_back(_lock_of(path))


def set_aside(path: Path) -> None:
    """Rename a journal that cannot be understood, once its GPU is reset, and give back its lease."""
    path.rename(path.with_name(f"{_uuid_of(path)}.unreadable"))
    process_lock.give_back(_lock_of(path))


def read(path: Path) -> Journal | None:
    """Read a journal; ``None`` if it has been removed meanwhile, or is none because others can have written it."""
    try:
        with opened(path.parent) as folder:
            text, about = read_bytes(folder, path.name)
            if not is_own(about) or not is_own(os.fstat(folder)):
                return None
    except FileNotFoundError:
        return None
    except OSError as error:
        return _unreadable(path, error.strerror or str(error))
    this_boot = True
    try:
        document = json.loads(text)
        this_boot = _is_this_boot(document["boot"])
        raw = document["restore"]
        core, memory = (_range(raw[key]) for key in ("core_mhz", "memory_mhz"))
        limit = None if raw["power_limit_w"] is None else float(raw["power_limit_w"])
        profiles = raw.get("profiles")  # missing from journals of earlier versions
        found = Restore(core, memory, limit, None if profiles is None else tuple(map(str, profiles)))
        uuid, failed = str(document["uuid"]), document.get("failed")
        if uuid != _uuid_of(path):
            return _unreadable(path, f"it is of another GPU, {uuid}", this_boot)
        return Journal(
            path, uuid, _holder(document), _alive(path, document), found, about.st_uid,
            changed=frozenset(map(str, document.get("changed", ()))), failed=None if failed is None else str(failed),
            kept=frozenset(map(str, document.get("kept", ()))), this_boot=this_boot,
        )  # fmt: skip
    except Exception as error:  # whatever a file holds, it must not keep other GPUs from being restored
        return _unreadable(path, f"{type(error).__name__}: {error}", this_boot)


def _unreadable(path: Path, why: str, this_boot: bool = True) -> Journal | None:
    """What is known of a journal that cannot be understood: its GPU, and whether its owner lives, from names alone."""
    try:
        user = path.lstat().st_uid
    except OSError:
        return None
    alive = bool(process_lock.is_taken(_lock_of(path)))
    why = f"{path}: {why}"
    return Journal(path, _uuid_of(path), Holder(0, user), alive, Restore(), user, unreadable=why, this_boot=this_boot)


def _is_this_boot(boot: object) -> bool:
    """Whether a journal is of the machine's present run; also where that is not known, as clocks may be changed then."""
    return not isinstance(boot, str) or boot in ("", boot_id()) or not boot_id()


def _uuid_of(path: Path) -> str:
    return path.name.split(".json", maxsplit=1)[0]


def _holder(document: dict[str, object]) -> Holder:
    client = document.get("client")
    which = document if client is None else client
    if not isinstance(which, dict):
        raise TypeError("client: not an object")
    here = document.get("space", process_space()) == process_space()
    return Holder(int(which["process"]), int(which.get("user", os.getuid())), client is not None, here)


def _alive(path: Path, document: dict[str, object]) -> bool:
    """Whether the owner of a journal lives: it holds the lock, unless an earlier version wrote the journal."""
    process, started, boot = int(str(document["process"])), str(document["started"]), str(document["boot"])
    if document.get("schema") == SCHEMA:
        taken = process_lock.is_taken(_lock_of(path))
        if taken is not None:
            return taken
        if document["space"] != process_space():
            return boot == boot_id()  # not to be known from here
    _, _, claimed = path.name.partition(".claimed-")  # by the earlier version, which renamed what it was restoring
    if claimed:
        number, _, started = claimed.partition("-")
        process = int(number)
    return boot == boot_id() and bool(started) and start_of(process) == started


def _lock_of(path: Path) -> Path:
    return path.with_name(f".{_uuid_of(path)}.lock")


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith(".") and ".json" in path.name)
    except FileNotFoundError:
        return []
    except OSError as error:
        if folder == MACHINE and os.geteuid() != 0:  # root's are not for others to see
            return []
        raise DeviceError(f"{folder}: journals of changed clocks cannot be read: {error.strerror}") from error


def _write(path: Path, text: str) -> None:
    with opened(path.parent) as folder:
        if not is_own(os.fstat(folder)):
            raise OSError(0, f"users other than its owner can write to {path.parent}")
        write(folder, path.name, text)


def _range(raw: list[float] | None) -> tuple[float, float] | None:
    return None if raw is None else (float(raw[0]), float(raw[1]))

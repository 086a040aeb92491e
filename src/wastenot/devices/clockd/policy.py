"""The policy of wastenotd: who may set which clocks of which GPUs, how far and for how long; see deploy/wastenotd.toml."""

from __future__ import annotations

import grp
import os
import pwd
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from math import inf, isfinite
from pathlib import Path
from typing import Any

from wastenot.core.errors import BadInputError
from wastenot.core.vendors import vendor_of_id
from wastenot.devices.common.journal import Restore
from wastenot.devices.common.state_files import is_own, opened

Range = tuple[float, float]
Gpus = frozenset[int | str] | None
"""Indices and UUIDs; ``None`` for all."""
_ANYTHING: Range = (0.0, inf)


@dataclass(frozen=True, slots=True)
class Peer:
    """A process at the other end of a socket, as the kernel tells it.

    Attributes:
        user: its user's ID.
        groups: IDs of its groups.
        process: its ID; 0 where it is not visible from here.
    """

    user: int
    groups: frozenset[int]
    process: int


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU by its names."""

    index: int
    uuid: str


@dataclass(frozen=True, slots=True)
class Bounds:
    """What may be set; ``None`` for what may not.

    Attributes:
        core_mhz: lowest and highest core clock.
        memory_mhz: of the memory.
        power_limit_w: of the power limit.
        longest_lease_s: how long a lease may last.
        profiles: workload power profiles that may be requested.
    """

    core_mhz: Range | None = _ANYTHING
    memory_mhz: Range | None = _ANYTHING
    power_limit_w: Range | None = _ANYTHING
    longest_lease_s: float = 604800.0
    profiles: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Rule:
    """Who may do what.

    Attributes:
        users: their IDs.
        groups: IDs of groups whose members may.
        gpus: that it is about.
        bounds: what may be set.
    """

    users: frozenset[int]
    groups: frozenset[int]
    gpus: Gpus
    bounds: Bounds


@dataclass(frozen=True, slots=True)
class Policy:
    """All of it.

    Attributes:
        rules: in order; the first that fits holds.
        restores: what GPUs are restored to.
        budgets: in watts, that GPUs share.
        group: ID of the socket's group; ``None`` for root's.
        heartbeat_s: of silence, after which a lease ends.
        requests_per_s: that a user's clients may make together; more have to wait.
        connections_per_user: at a time.
    """

    rules: tuple[Rule, ...]
    restores: tuple[tuple[Gpus, Restore], ...] = ()
    budgets: tuple[tuple[Gpus, float], ...] = ()
    group: int | None = None
    heartbeat_s: float = 30.0
    requests_per_s: float = 200.0
    connections_per_user: int = 32

    def bounds(self, peer: Peer, gpu: Gpu) -> Bounds | None:
        """What a peer may set of a GPU; ``None`` for nothing."""
        for rule in self.rules:
            if (peer.user in rule.users or peer.groups & rule.groups) and fits(rule.gpus, gpu):
                return rule.bounds
        return None

    def restore(self, gpu: Gpu) -> Restore:
        """What a GPU is restored to."""
        return next((restore for gpus, restore in self.restores if fits(gpus, gpu)), Restore())


def fits(gpus: Gpus, gpu: Gpu) -> bool:
    """Whether a GPU is one of them."""
    return gpus is None or gpu.index in gpus or gpu.uuid in gpus


PolicyFiles = Mapping[Path, Policy]
"""What the files of a policy say: its own first, then the rules of jobs, in the order in which these are tried."""


def read_files(path: Path, jobs: Path | None, before: PolicyFiles | None = None) -> tuple[PolicyFiles, list[BadInputError]]:
    """What the files of a policy say, and the mistakes in them, such as that others than root may write one.

    A file that cannot be understood says what it said before, if anything, and so do all of a folder that is refused; the
    rules of a job whose file is gone say nothing any more.

    Args:
        path: the policy.
        jobs: a folder of files ``*.toml`` with more rules, such as those of a scheduler for its jobs.
        before: what the files said before.
    """
    before, found, mistakes = before or {}, dict[Path, Policy](), list[BadInputError]()
    kept: PolicyFiles = {}
    try:
        more = _files(jobs)
    except BadInputError as error:  # whoever can write to the folder can have written any file of it
        more, kept = [], {file: its for file, its in before.items() if file != path}
        mistakes.append(error)
    for file in [path, *more]:
        try:
            found[file] = _part(file) if file == path else _part_of_job(file)
        except BadInputError as error:
            if file != path and isinstance(error.__cause__, FileNotFoundError):
                continue  # its job has ended since the folder was listed
            mistakes.append(error)
            if file in before:
                found[file] = before[file]
    return {**found, **kept}, mistakes


def policy_of(path: Path, files: PolicyFiles) -> Policy:
    """The policy that its files make: the rules of jobs come before its own."""
    own = files.get(path, Policy(()))
    jobs = [rule for file, its in files.items() if file != path for rule in its.rules]
    return replace(own, rules=(*jobs, *own.rules))


def _part(path: Path) -> Policy:
    for folder in {path.parent, path.resolve().parent}:
        _check_folder(folder)
    table = _Table(path, "", _load(path))
    given = {
        "group": table.one("group", _group),
        **{name: table.one(name, _positive) for name in ("heartbeat_s", "requests_per_s")},
        "connections_per_user": table.one("connections_per_user", _count),
    }
    rules = tuple(_rule(each) for each in table.tables("allow"))
    restores = tuple(_restore(each) for each in table.tables("restore"))
    budgets = tuple(_budget(each) for each in table.tables("budget"))
    table.finish()
    return Policy(rules, restores, budgets, **{name: value for name, value in given.items() if value is not None})


def _part_of_job(path: Path) -> Policy:
    table = _Table(path, "", _load(path, follow=False))
    rules = tuple(_rule(each) for each in table.tables("allow"))
    table.finish()
    return Policy(rules)


def _rule(table: _Table) -> Rule:
    users, groups = table.some("users", _user), table.some("groups", _group)
    if not users and not groups:
        raise table.error("users", "list who is allowed, here or in 'groups'")
    bounds: dict[str, Any] = {}
    for name in ("core_mhz", "memory_mhz", "power_limit_w"):
        if table.has(name):
            bounds[name] = table.one(name, lambda value: None if value is False else _range(value))
    bounds["profiles"] = frozenset(table.some("profiles", _text) or ())
    longest_s = table.one("longest_lease_s", _positive)
    if longest_s is not None:
        bounds["longest_lease_s"] = longest_s
    gpus = table.some("gpus", _gpu)
    rule = Rule(frozenset(users or ()), frozenset(groups or ()), None if gpus is None else frozenset(gpus), Bounds(**bounds))
    table.finish()
    return rule


def _restore(table: _Table) -> tuple[Gpus, Restore]:
    gpus = table.some("gpus", _gpu)
    found = Restore(table.one("core_mhz", _range), table.one("memory_mhz", _range))
    table.finish()
    return None if gpus is None else frozenset(gpus), found


def _budget(table: _Table) -> tuple[Gpus, float]:
    gpus, budget_w = table.some("gpus", _gpu), table.one("budget_w", _positive)
    if budget_w is None:
        raise table.error("budget_w", "write the watts that the GPUs may draw together")
    table.finish()
    return None if gpus is None else frozenset(gpus), budget_w


class _Table:
    """A table of a policy file; what is not asked for is a mistake."""

    def __init__(self, path: Path, name: str, fields: dict[str, Any]) -> None:
        self._path, self._name, self._fields = path, name, dict(fields)

    def has(self, field: str) -> bool:
        return field in self._fields

    def one(self, field: str, parse: Callable[[Any], Any]) -> Any:
        """A value; ``None`` where it is not there."""
        if field not in self._fields:
            return None
        try:
            return parse(self._fields.pop(field))
        except (ValueError, TypeError, OverflowError) as error:
            raise self.error(field, str(error)) from error

    def some(self, field: str, parse: Callable[[Any], Any]) -> list[Any] | None:
        """The values of a list; ``None`` where it is not there."""
        found: list[Any] | None = self.one(field, lambda value: [parse(each) for each in _list(value)])
        return found

    def tables(self, field: str) -> list[_Table]:
        """Tables of an array of tables."""
        value = self.one(field, _list) or []
        if not all(isinstance(each, dict) for each in value):
            raise self.error(field, f"write [[{field}]]")
        return [_Table(self._path, f"{field}[{place}].", each) for place, each in enumerate(value, 1)]

    def finish(self) -> None:
        """Raises where a field is left."""
        if self._fields:
            raise self.error(next(iter(self._fields)), "there is no such field")

    def error(self, field: str, text: str) -> BadInputError:
        return BadInputError(f"{self._path}: {self._name}{field}: {text}")


def _files(jobs: Path | None) -> list[Path]:
    """The files of the rules of jobs, by name; none where there is no folder."""
    if jobs is None:
        return []
    try:
        with opened(jobs) as folder:
            _check(jobs, os.fstat(folder))
            return [jobs / name for name in sorted(os.listdir(folder)) if fnmatch(name, "[!.]*.toml")]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise BadInputError(f"{jobs}: cannot be read: {error.strerror}") from error


def _check_folder(folder: Path) -> None:
    """Refuse a folder in which others can replace a file, unless nobody can, as where a ConfigMap is mounted."""
    try:
        if not os.statvfs(folder).f_flag & os.ST_RDONLY:
            _check(folder, folder.stat())
    except OSError as error:
        raise BadInputError(f"{folder}: cannot be read: {error.strerror}") from error


def _check(path: Path, about: os.stat_result) -> None:
    if not is_own(about):
        raise BadInputError(f"{path}: users other than root can write to it; chown root {path}; chmod go-w {path}")


def _load(path: Path, *, follow: bool = True) -> dict[str, Any]:
    """A file's document. A policy may be a link, as in a ConfigMap of Kubernetes; the rules of a job may not."""
    try:
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
        with open(os.open(path, flags), "rb") as stream:
            _check(path, os.fstat(stream.fileno()))
            return tomllib.load(stream)
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInputError(f"{path}: {error}") from error


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{value!r} is not a list")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not the name of a workload power profile, such as 'max-q' (wastenot doctor)")
    return value


def _id(value: Any, kind: str, number_of: Callable[[str], int]) -> int:
    if type(value) is int and 0 <= value < 2**32 - 1:
        return value
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is neither a name nor an ID of a {kind}")
    try:
        return number_of(value)
    except KeyError as error:
        raise ValueError(f"this machine has no {kind} '{value}'") from error


def _user(value: Any) -> int:
    return _id(value, "user", lambda name: pwd.getpwnam(name).pw_uid)


def _group(value: Any) -> int:
    return _id(value, "group", lambda name: grp.getgrnam(name).gr_gid)


def _gpu(value: Any) -> int | str:
    if (type(value) is int and value >= 0) or (isinstance(value, str) and vendor_of_id(value) is not None):
        return value
    raise ValueError(f"{value!r} is neither an index of a GPU nor a UUID (wastenot doctor)")


def _positive(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value <= 0.0:
        raise ValueError(f"{value!r} is not a positive number")
    return float(value)


def _count(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise ValueError(f"{value!r} is not a positive whole number")
    return value


def _range(value: Any) -> Range:
    numbers = _list(value)
    if len(numbers) != 2 or any(isinstance(each, bool) or not isinstance(each, int | float) for each in numbers):
        raise ValueError(f"{value!r}: write the lowest and the highest, such as [900, 1980]")
    low, high = map(float, numbers)
    if not 0.0 <= low <= high < inf or high == 0.0:
        raise ValueError(f"{value!r}: write the lowest and then the highest, both finite")
    return low, high

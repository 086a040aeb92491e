"""What it takes to apply a plan to GPUs of this machine: the plan, the cards, their leases, a session."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wastenot.control.controller import Controller
from wastenot.control.driver import Subject
from wastenot.control.fitting import check_card, check_may_set, check_named_once, schedule_of, why_not_the_job
from wastenot.control.hooks import Seen
from wastenot.control.places import make_own_socket_path, make_socket_path
from wastenot.control.rehearsed import Rehearsed
from wastenot.control.session import PATIENCE_S, Session
from wastenot.control.traffic import traffic_of
from wastenot.core.errors import BadInputError
from wastenot.core.vendors import VENDORS, commands, undo_commands, vendor_named
from wastenot.devices.open import device_of_study, is_virtual, open_device
from wastenot.devices.protocol import Device
from wastenot.planning.plan import Plan
from wastenot.planning.plan_file import read_plan

if TYPE_CHECKING:
    from wastenot.devices.common.journal import Restore
    from wastenot.planning.schedule import Schedule, Segment


@dataclass(frozen=True, slots=True)
class Application:
    """A plan and where it is applied.

    Attributes:
        plan: the plan.
        path: of its file, or its workload where it has none.
        schedule: what is carried out.
        gpus: to set.
        notes: worth telling before.
        rehearsal: whether a program is to run beside simulated GPUs.
    """

    plan: Plan
    path: str
    schedule: Schedule
    gpus: tuple[Device, ...]
    notes: tuple[str, ...]
    rehearsal: bool = False

    def controller(self, *, dry_run: bool = False, seed: int = 0) -> Controller:
        """What carries it out."""
        subject = Subject(self.path, self.plan.digest, self.plan.workload, self.gpus[0].identity.origin)
        now_s = self.gpus[0].time.now_s()
        rehearsed = Rehearsed(self._expected(), self._begins(), len(self.gpus)) if self.rehearsal else None
        made = Controller(
            self.schedule, self.gpus, subject, now_s=now_s, seed=seed, dry_run=dry_run, rehearsed=rehearsed,
            traffic=traffic_of(self.gpus, rehearsal=self.rehearsal),
        )  # fmt: skip
        made.of_units = self.plan.tuned is not None and self.plan.tuned.proxy_error is not None
        return made

    def _begins(self) -> list[str]:
        """The markers at which the plan changes clocks."""
        return sorted({segment.begins for rung in self.schedule.rungs for segment in rung.segments})

    def _expected(self) -> list[str]:
        """The plan's passes, and the layers' turns at which it changes clocks, in order of execution."""
        begins = self._begins()
        return [each.name for each in self.schedule.markers if ":" not in each.name or each.name in begins]

    def session(
        self, *, dry_run: bool = False, seed: int = 0, name: str | None = None, patience_s: float = PATIENCE_S
    ) -> Session:
        """A session that carries it out, not yet begun.

        Args:
            dry_run: change no clocks.
            seed: of the order of comparisons.
            name: of its socket; by default one of its own.
            patience_s: how long to wait for the first iteration before none is expected.

        Raises:
            BadInputError: its socket cannot be made.
        """
        controller = self.controller(dry_run=dry_run, seed=seed)
        rehearsed = controller.rehearsed

        def fits(seen: Seen) -> str | None:
            another = why_not_the_job(self.plan, seen)
            if rehearsed is None:
                return another
            rehearsed.saw(seen, another)
            return None

        return Session(
            controller,
            make_own_socket_path("apply") if name is None else make_socket_path(name),
            wanted=self._begins() if rehearsed is None else self._expected(),
            by_layers=self.plan.captured_on is None,
            fits=fits,
            lease=not dry_run,
            patience_s=patience_s,
        )


def prepare(
    plan: str | os.PathLike[str] | Plan,
    devices: Sequence[str] | None = None,
    *,
    dry_run: bool = False,
    restore: Restore | None = None,
    seed: int = 0,
    program: bool = False,
    ranks: int = 1,
) -> Application:
    """Read a plan and open the GPUs that it is for; changes nothing.

    Args:
        plan: or its file.
        devices: names of GPUs; by default the card that the plan was made on.
        dry_run: clocks will not be changed, so that nobody has to be allowed to.
        restore: ranges of locked clocks to restore afterwards.
        seed: of a simulated GPU.
        program: a program is to run rather than a simulated job: with simulated GPUs, which then live in wall time, it is a
            rehearsal.
        ranks: of the program on this machine; where one simulated GPU is named, each has one of its own.

    Raises:
        BadInputError: the plan was edited, has no schedule, or is for another kind of card.
        ClocksRefusedError: this process may not set clocks; says what would be needed.
        DeviceError: a GPU does not respond.
    """
    path = plan.workload if isinstance(plan, Plan) else os.fspath(plan)
    made = read_plan(plan)
    schedule = schedule_of(made, path)
    names = tuple(devices or (device_of_study(path, made.device),))
    if program and len(names) == 1 and names[0].startswith("sim:"):
        names *= ranks
    gpus = open_gpus(names, program=program, dry_run=dry_run, restore=restore, seed=seed)
    notes = [note for gpu in gpus if (note := check_card(made.device, path, gpu.identity)) is not None]
    if not dry_run:
        check_may_set(gpus)
    rehearsal = program and all(name.startswith("sim:") for name in names)
    return Application(made, path, schedule, gpus, tuple(dict.fromkeys(notes)), rehearsal)


def open_gpus(
    gpus: Sequence[str | Device], *, program: bool, dry_run: bool = False, restore: Restore | None = None, seed: int = 0
) -> tuple[Device, ...]:
    """Open the GPUs of a job.

    Args:
        gpus: or their names, which are opened.
        program: as of :func:`prepare`, as are the others.
        dry_run: clocks will not be changed.
        restore: ranges of locked clocks to restore afterwards.
        seed: of a simulated GPU; of several beside a program, each has its own.

    Raises:
        BadInputError: one is named twice, or a program cannot run on them.
        DeviceError: a GPU does not respond.
    """
    rehearsal = program and all(isinstance(one, str) and one.startswith("sim:") for one in gpus)
    opened = tuple(
        open_device(
            one, seed=seed + index * rehearsal, wall_time=rehearsal, allow_clock_control=not dry_run, restore=restore
        ) if isinstance(one, str) else one
        for index, one in enumerate(gpus)
    )  # fmt: skip
    if program and any(is_virtual(gpu) for gpu in opened):
        raise BadInputError("`device`: for a program to run on, name either simulated GPUs (sim:NAME) or real ones")
    check_named_once(opened)
    return opened


def parse_devices(text: str) -> tuple[str, ...]:
    """Names of devices: ``nvidia:0,1`` stands for ``nvidia:0,nvidia:1``.

    Raises:
        BadInputError: a part is empty.
    """
    names: list[str] = []
    for part in (part.strip() for part in text.split(",")):
        if not part:
            raise BadInputError(f"`device` {text}: has an empty part; write nvidia:0,1")
        vendor = vendor_named(names[0]) if names and ":" not in part else None
        if vendor is not None:
            names.append(f"{vendor.name}:{part}")
        else:
            names.append(part)
    return tuple(names)


def would_be_set(application: Application) -> Iterator[str]:
    """Lines that say what would be set, also as commands of the vendor's tool."""
    rung = application.schedule.rungs[0]
    for gpu in application.gpus:
        identity = gpu.identity
        yield f"{identity.name} ({identity.model}), in each iteration of {application.plan.workload}:"
        before: tuple[str, ...] = commands(identity.label, rung.segments[-1].setting) if len(rung.segments) > 1 else ()
        for segment in rung.segments:
            yield f"  {_segment_text(segment)}"
            wanted = commands(identity.label, segment.setting)
            for command in wanted:
                if command not in before:
                    yield f"      {command}"
            for command in undo_commands([line for line in before if _flag(line) not in map(_flag, wanted)]):
                yield f"      {command}"
            before = wanted
        undo = undo_commands([line for one in rung.segments for line in commands(identity.label, one.setting)])
        yield "  afterwards, and in blocks at the default clocks, for comparison"
        for command in undo:
            yield f"      {command}"


def _flag(command: str) -> str:
    """What a command sets."""
    return next(
        word for word in command.split() if word.startswith("-") and word not in [vendor.card_option for vendor in VENDORS]
    )


def _segment_text(segment: Segment) -> str:
    where = f"from {segment.begins}"
    if segment.offset_s > 0.0:
        where += f" + {1e3 * segment.offset_s:.3g} ms"
    early = f", requested {1e3 * segment.early_s:.3g} ms before" if segment.early_s > 0.0 else ""
    return f"{where}, for {1e3 * segment.time_s:.3g} ms: {segment.setting}{early}"

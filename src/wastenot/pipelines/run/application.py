"""What it takes to put a pipeline's plan to work on GPUs of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from wastenot.control.application import open_gpus
from wastenot.control.fitting import check_card, check_may_set
from wastenot.control.places import make_own_socket_path
from wastenot.control.rehearsed import Rehearsed
from wastenot.control.session import PATIENCE_S, Session
from wastenot.core.errors import BadInputError
from wastenot.core.setting import Setting
from wastenot.core.vendors import commands, undo_commands
from wastenot.devices.protocol import Device, Identity
from wastenot.meters.devices import visible_names
from wastenot.pipelines.plan.plan import PipelinePlan
from wastenot.pipelines.plan.plan_file import read_pipeline_plan
from wastenot.pipelines.plan.rank_steps import PlanGraph
from wastenot.pipelines.run.controller import PipelineController
from wastenot.pipelines.run.straggler_seat import source_of
from wastenot.planning.switching import switch_time

if TYPE_CHECKING:
    from wastenot.devices.common.journal import Restore

_NOBODYS = ("unknown", "unknown GPU")  # what plans of profiles say that do not name their card


@dataclass(frozen=True, slots=True)
class PipelineApplication:
    """A pipeline's plan and where it is applied.

    Attributes:
        graph: of the plan.
        path: of its file, or its name where it has none.
        gpus: to set.
        notes: worth telling before.
    """

    graph: PlanGraph
    path: str
    gpus: tuple[Device, ...]
    notes: tuple[str, ...]

    def controller(self, *, dry_run: bool = False) -> PipelineController:
        """What carries it out."""
        return PipelineController(
            self.graph,
            self.path,
            self.gpus,
            [switch_time(gpu.identity.label) for gpu in self.gpus],
            now_s=self.gpus[0].time.now_s(),
            dry_run=dry_run,
            digest=self.graph.plan.digest,
            connect=partial(source_of, self.graph.plan),
            rehearsed=self._rehearsed(),
        )

    def _rehearsed(self) -> Rehearsed | None:
        """What takes note of the program, where the GPUs are simulated; each rank need not run every instruction."""
        if not all(gpu.identity.name.startswith("sim:") for gpu in self.gpus):
            return None
        steps = (step for rank in range(len(self.graph.plan.ranks)) for step in self.graph.steps(rank))
        return Rehearsed((step.instruction.name for step in steps), gpus=len(self.gpus))

    def session(
        self,
        *,
        dry_run: bool = False,
        rank: int | None = None,
        patience_s: float = PATIENCE_S,
    ) -> Session:
        """A session that carries it out, not yet begun.

        Args:
            dry_run: change no clocks.
            rank: of the pipeline that runs on the only GPU; by default programs say which they are.
            patience_s: how long to wait for the first instruction.

        Raises:
            BadInputError: its socket cannot be made, or the plan has no such rank.
        """
        controller = self.controller(dry_run=dry_run)
        if rank is not None:
            controller.seat(0, rank)
        return Session(
            controller,
            make_own_socket_path("apply"),
            lease=not dry_run,
            patience_s=patience_s,
            seats=controller,
            one_program=rank is not None,
        )


def prepare_pipeline(
    plan: str | os.PathLike[str] | PipelinePlan,
    devices: Sequence[str] | None = None,
    *,
    dry_run: bool = False,
    restore: Restore | None = None,
    seed: int = 0,
) -> PipelineApplication:
    """Read a pipeline's plan and open the GPUs that it is for; changes nothing.

    Args:
        plan: or its file.
        devices: names of the GPUs of this machine; by default the device of the plan, where that is a simulated one, which
            then lives in wall time.
        dry_run: clocks will not be changed, so that nobody has to be allowed to.
        restore: ranges of locked clocks to restore afterwards.
        seed: of simulated GPUs.

    Raises:
        BadInputError: the plan was edited, or is for another kind of card; or no GPU is named.
        ClocksRefusedError: this process may not set clocks; says what would be needed.
        DeviceError: a GPU does not respond.
    """
    path = plan.name if isinstance(plan, PipelinePlan) else os.fspath(plan)
    made = plan if isinstance(plan, PipelinePlan) else read_pipeline_plan(plan)
    names = devices or ((made.device,) if made.device.startswith("sim:") else None)
    if not names and "LOCAL_RANK" in os.environ:
        names = visible_names()[int(os.environ["LOCAL_RANK"]) :][:1]
    if not names:
        raise BadInputError(
            f"`device`: {path} was made for '{made.device}'; name the GPUs of this machine, such as nvidia:0"
        )
    gpus = open_gpus(names, program=True, dry_run=dry_run, restore=restore, seed=seed)
    notes = [note for gpu in gpus if (note := check_pipeline_card(made, path, gpu.identity)) is not None]
    if not dry_run:
        check_may_set(gpus)
    return PipelineApplication(PlanGraph(made), path, gpus, tuple(dict.fromkeys(notes)))


def check_pipeline_card(plan: PipelinePlan, path: str, card: Identity) -> str | None:
    """Refuse a plan of another kind of card; returns what is worth telling.

    Raises:
        BadInputError: the plan was made for another model.
    """
    made_for = plan.device
    if made_for in _NOBODYS:
        return f"{path}: does not say on which card it was profiled; {card.model} is assumed to be like it"
    return check_card(made_for, path, card)


def would_be_set_in_pipeline(application: PipelineApplication) -> Iterator[str]:
    """Lines that say what would be set on each rank, and by which commands of the vendor's tool."""
    graph = application.graph
    label = application.gpus[0].identity.label
    for number in range(len(graph.plan.ranks)):
        steps = graph.steps(number)
        within = f"in each iteration of {graph.plan.name} ({graph.plan.schedule}, {1e3 * graph.period_s:.4g} ms)"
        yield f"rank {number}, {within}:"
        before: Setting | None = None
        for step in steps:
            for stay in step.stays:
                if stay.setting == before:
                    continue
                before = stay.setting
                at_ms, what = 1e3 * (step.start_s + stay.offset_s), step.instruction
                yield f"  from {what.name} of micro-batch {what.micro_batch}, at {at_ms:.4g} ms: {before}"
        settings = list(dict.fromkeys(stay.setting for step in steps for stay in step.stays))
        wanted = tuple(dict.fromkeys(line for each in settings for line in commands(label, each)))
        for command in (*wanted, *undo_commands(wanted)):
            yield f"      {command}"

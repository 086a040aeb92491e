"""What a pod's annotations ask for.

    wastenot.dev/core-mhz: "1410"       ceiling of the core clock of each of its GPUs
    wastenot.dev/memory-mhz: "2619"     memory clock
    wastenot.dev/budget-w: "2800"       all its GPUs together: each gets an equal part as its power limit
    wastenot.dev/profile: max-q         the vendor's workload power profile
    wastenot.dev/plan: llama            a plan that the administrator keeps on the node, if it has one setting for all

Dynamo's power agent limits the power of pods with an annotation of its own: theirs holds, and only clocks are set.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from wastenot.core.errors import BadInputError
from wastenot.core.profiles import profile_number
from wastenot.core.setting import Setting
from wastenot.core.vendors import with_drivers
from wastenot.devices.pods.api import Pod
from wastenot.devices.protocol import ClockControl

PREFIX = "wastenot.dev/"
_NUMBERS = ("core-mhz", "memory-mhz", "budget-w")
_NUMBER = re.compile(r"\d{1,6}(\.\d{1,3})?")
_PLAN = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Wish:
    """What a pod asks for.

    Attributes:
        each: the setting of each of its GPUs.
        budget_w: for all its GPUs together, if any.
        note: what of it is left to others, and to whom.
    """

    each: Setting
    budget_w: float | None = None
    note: str = ""

    def setting(self, clocks: ClockControl, gpus: int) -> Setting:
        """The setting of one of a pod's GPUs; a core clock that it does not have is rounded down, as a ceiling is.

        Args:
            clocks: of the GPU.
            gpus: of the pod.

        Raises:
            BadInputError: the GPU cannot do it, or nobody may set it here.
        """
        core, memory, limit_w = self.each.core_mhz, self.each.memory_mhz, self.each.power_limit_w
        if core is not None:
            supported = clocks.supported_clocks()
            within = supported.get(max(supported, default=0.0) if memory is None else memory, ())
            core = max((clock for clock in within if clock <= core), default=None)
            if core is None:
                lowest = f"the lowest here is {within[0]:g} MHz" if within else "none may be set here"
                raise BadInputError(f"core clock of {self.each.core_mhz:g} MHz: {lowest}")
        if self.budget_w is not None:
            limit_w, allowed = self.budget_w / gpus, clocks.power_limits_w()
            if allowed is None or limit_w < allowed[0]:
                lowest = "none may be set here" if allowed is None else f"the lowest here is {allowed[0]:g} W"
                raise BadInputError(f"{self.budget_w:g} W for {gpus} GPUs: a power limit of {limit_w:g} W each; {lowest}")
            limit_w = min(limit_w, allowed[1])
        return replace(self.each, core_mhz=core, power_limit_w=limit_w)


def wish_of(pod: Pod, plans: Path) -> Wish | None:
    """What a pod asks for; ``None`` where it asks for nothing.

    Args:
        pod: the pod.
        plans: folder of plans, ``NAME.json`` each.

    Raises:
        BadInputError: an annotation cannot be understood; says which.
    """
    given = {name.removeprefix(PREFIX): value for name, value in pod.annotations.items() if name.startswith(PREFIX)}
    if not given:
        return None
    unknown = sorted(given.keys() - {*_NUMBERS, "profile", "plan"})
    if unknown:
        raise BadInputError(
            f"{PREFIX}{unknown[0]}: there is no such annotation; write {', '.join(_NUMBERS)}, profile or plan"
        )
    core_mhz, memory_mhz, budget_w = (_number(given, name) for name in _NUMBERS)
    profile = given.get("profile")
    if profile is not None and profile_number(profile) is None:
        raise BadInputError(f"{PREFIX}profile {profile[:20]!r}: not the name of a workload power profile, such as max-q")
    each = Setting(core_mhz, memory_mhz, profile=profile)
    if "plan" in given:
        if given.keys() != {"plan"}:
            raise BadInputError(f"{PREFIX}plan: it says everything; leave out {', '.join(sorted(given.keys() - {'plan'}))}")
        each = _setting_of_plan(given["plan"], plans)
    others = [name for vendor in with_drivers() if (name := vendor.power_annotation) in pod.annotations]
    if others and (budget_w, each.power_limit_w) != (None, None):
        return Wish(replace(each, power_limit_w=None), note=f"the power limit is left to {others[0]}")
    return Wish(each, budget_w)


def _number(given: Mapping[str, str], name: str) -> float | None:
    if name not in given:
        return None
    if not _NUMBER.fullmatch(given[name]) or not float(given[name]):
        raise BadInputError(f"{PREFIX}{name} {given[name][:20]!r}: not a positive number")
    return float(given[name])


def _setting_of_plan(name: str, plans: Path) -> Setting:
    from wastenot.planning.plan_file import read_plan

    if not _PLAN.fullmatch(name):
        raise BadInputError(f"{PREFIX}plan {name[:20]!r}: not the name of a plan: small letters, digits, - and .")
    settings = {each.setting for each in read_plan(plans / f"{name}.json").assignments}
    if len(settings) > 1:
        raise BadInputError(
            f"{PREFIX}plan {name}: only a program can switch its {len(settings)} settings: run wastenot apply in the pod"
        )
    return settings.pop()

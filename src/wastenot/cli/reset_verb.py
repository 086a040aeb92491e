"""``wastenot reset``: put right the clocks that a process left changed."""

from __future__ import annotations

from wastenot.cli.options import JsonOption


def reset(as_json: JsonOption = False) -> None:
    """Give back the clocks that a killed run of wastenot left changed; the journals say which, and to what they go back."""
    from wastenot.cli.output import print_json, say
    from wastenot.devices.nvidia.clocks import recover
    from wastenot.devices.nvidia.journal import journals, state_folder
    from wastenot.devices.nvidia.nvml import Nvml, forbidden
    from wastenot.errors import DeviceError

    there = journals()
    left = [journal for journal in there if not journal.owner_alive]
    reason = forbidden()
    if left and reason is not None:
        raise DeviceError(f"{len(left)} GPUs have clocks left changed, which stay so: {reason}")
    done = recover(Nvml(allow_changes=True)) if left else ()
    held = [journal for journal in there if journal.owner_alive]
    if as_json:
        print_json({"put_right": [journal.uuid for journal in done], "held": [journal.uuid for journal in held]})
        return
    for journal in done:
        say(f"{journal.uuid}: process {journal.owner} is dead; clocks and power limit are as before")
    for journal in held:
        say(f"{journal.uuid}: process {journal.owner} runs and has its clocks; it gives them back itself")
    if not there:
        say(f"nothing was left changed (no journal in {state_folder()})")

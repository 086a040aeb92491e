"""``wastenot reset``: restore clocks that a dead process left changed."""

from __future__ import annotations

from wastenot.cli.options import JsonOption


def reset(as_json: JsonOption = False) -> None:
    """Restore clocks that a killed run of wastenot left changed, as recorded in its journal."""
    from wastenot.cli.output import print_json, say
    from wastenot.devices.nvidia.clocks import recover
    from wastenot.devices.nvidia.journal import journals, state_folder
    from wastenot.devices.nvidia.nvml import Nvml, forbidden
    from wastenot.errors import DeviceError

    all_journals = journals()
    left = [journal for journal in all_journals if not journal.owner_alive]
    reason = forbidden()
    if left and reason is not None:
        raise DeviceError(f"{len(left)} GPUs have clocks left changed and were not restored: {reason}")
    done = recover(Nvml(allow_changes=True)) if left else ()
    held = [journal for journal in all_journals if journal.owner_alive]
    if as_json:
        print_json({"put_right": [journal.uuid for journal in done], "held": [journal.uuid for journal in held]})
        return
    for journal in done:
        say(f"{journal.uuid}: process {journal.owner} is dead; clocks and power limit are restored")
    for journal in held:
        say(f"{journal.uuid}: process {journal.owner} is running and controls its clocks; it restores them itself")
    if not all_journals:
        say(f"nothing was left changed (no journals in {state_folder()})")

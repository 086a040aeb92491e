"""Which pod a process belongs to: the kubelet names the control groups of a pod by its UID.

/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod3f2a…_….slice/cri-containerd-….scope    systemd
/kubepods/burstable/pod3f2a…-…/…                                                                      cgroupfs
/../../kubepods-besteffort-pod3f2a…_….slice/…               seen from a container with a cgroup namespace of its own
"""

from __future__ import annotations

import re
from pathlib import Path

_POD = re.compile(r"[/-]pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})")


def pod_of(process: int, proc: Path = Path("/proc")) -> str | None:
    """UID of the pod of a process; empty where it is in none, ``None`` where there is no such process (any more).

    Args:
        process: its ID, as this process sees it.
        proc: where the system shows processes.
    """
    try:
        groups = (proc / str(process) / "cgroup").read_text()
    except OSError:
        return None
    found = _POD.search(groups)  # the outermost: a pod may make more groups in its own, with whatever names
    return "" if found is None else found[1].replace("_", "-")

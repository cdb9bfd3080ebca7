"""The rules under which one call runs: made of its limits, its profile, and what the host can give. Pure.

A plan is the environment, the steps that the call's own process takes before it loads the tool, and, where a
profile needs it, the command that the process is started through. A profile that the host cannot give is refused
here, never weakened. ``tools/sandbox_steps.py`` performs the steps; ``actors/worker_start.py`` asks for the plan.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from callboard.tools.errors import ToolsError
from callboard.tools.limits import Limits

EXIT_NOT_SET_UP = 125
EXIT_CHANNEL_LOST = 124
"""With these codes a call's process says that it could not take its steps, or could not hand over its result."""

_MIB = 1024 * 1024
_USUAL = ("PATH", "LANG", "LANGUAGE", "TZ", "USER", "LOGNAME", "TERM")
_USUAL_PREFIX = "LC_"
_SYSTEM = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/alternatives",
    "/etc/localtime",
    "/etc/timezone",
    "/etc/mime.types",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/group",
    "/etc/ssl/certs",
    "/etc/fonts",
)
_PROC = (
    "/proc/self",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/filesystems",
    "/proc/sys/kernel",
)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")

Act: TypeAlias = Literal["rlimit", "memory", "no_new_privileges", "landlock", "no_sockets"]
Step: TypeAlias = tuple[Act, tuple[str | int, ...]]


class ProfileRefused(ToolsError):
    """The host cannot give the profile; the message says what it lacks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What this machine offers. ``landlock`` is the kernel's ABI version, 0 for none; ``bubblewrap`` its command.

    ``seccomp``: system calls can be refused here (the machine's architecture is one that we know).
    """

    landlock: int = 0
    seccomp: bool = False
    bubblewrap: str | None = None
    is_root: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a call runs: its private folder, and the paths from which Python and the tool are loaded."""

    folder: str
    code: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How the call's process is made. ``exec_prefix`` is the command before Python's own; empty for none.

    ``by_exec``: the process starts from nothing, and shares no memory with the daemon; else it is a fork.
    ``cwd`` None keeps the daemon's.
    """

    steps: tuple[Step, ...]
    environment: Mapping[str, str]
    by_exec: bool = False
    exec_prefix: tuple[str, ...] = ()
    cwd: str | None = None


def make_plan(limits: Limits, host: Host, place: Place, environ: Mapping[str, str]) -> Plan:
    """Give the plan of one call; ``environ`` is the daemon's environment. Raises ProfileRefused."""
    environment = _environment(limits, place, environ)
    steps = _resource_steps(limits, host)
    match limits.sandbox:
        case "none":
            return Plan(steps=steps, environment=environment)
        case "confined":
            walls = _walls(limits, host, place)
            return Plan(steps=(*steps, *walls), environment=environment, by_exec=True, cwd=place.folder)
        case "isolated":
            prefix = _bubblewrap(limits, host, place)
            return Plan(
                steps=steps, environment=environment, by_exec=True, exec_prefix=prefix, cwd=place.folder
            )


def lacks(profile: str, host: Host) -> str | None:
    """Say what the host lacks for the profile; None when it can be given."""
    if profile == "confined" and not host.landlock:
        return "the kernel offers no Landlock (Linux 5.13 or newer, with landlock among its security modules)"
    if profile == "confined" and not host.seccomp:
        return "system calls cannot be filtered on this machine's architecture"
    if profile == "isolated" and host.bubblewrap is None:
        return "bubblewrap (the command bwrap) is not installed"
    return None


def _environment(limits: Limits, place: Place, environ: Mapping[str, str]) -> dict[str, str]:
    kept = {
        name: value
        for name, value in environ.items()
        if name in _USUAL or name in limits.env or name.startswith(_USUAL_PREFIX)
    }
    home = environ.get("HOME", place.folder) if limits.sandbox == "none" else place.folder
    own = {"HOME": home, "TMPDIR": place.folder}
    return kept | {name: value for name, value in own.items() if name not in limits.env}


def _resource_steps(limits: Limits, host: Host) -> tuple[Step, ...]:
    steps: list[Step] = [
        ("no_new_privileges", ()),
        ("rlimit", ("CORE", 0, 0)),
        ("rlimit", ("NOFILE", limits.open_files, limits.open_files)),
        ("rlimit", ("FSIZE", limits.file_mb * _MIB, limits.file_mb * _MIB)),
    ]
    if limits.cpu_s is not None:
        # The kernel counts whole seconds for one process; the watch counts finer and for all of them.
        whole = math.ceil(limits.cpu_s)
        steps.append(("rlimit", ("CPU", whole, whole + 1)))
    if limits.sandbox == "isolated" and not host.is_root:
        # In a user namespace of its own the count is the call's; elsewhere it would be all of the user's.
        steps.append(("rlimit", ("NPROC", limits.processes, limits.processes)))
    if limits.memory_mb is not None:
        steps.append(("memory", (limits.memory_mb,)))
    return tuple(steps)


def _walls(limits: Limits, host: Host, place: Place) -> tuple[Step, ...]:
    lacking = lacks("confined", host)
    if lacking is not None:
        raise ProfileRefused(lacking)
    readable = (*_SYSTEM, *_PROC, *place.code, *limits.readable)
    walls: list[Step] = [("landlock", ("read", path)) for path in readable]
    walls += [("landlock", ("write", path)) for path in (*_DEVICES, place.folder, *limits.writable)]
    return (*walls, ("landlock", ("enter",)), ("no_sockets", ()))


def _bubblewrap(limits: Limits, host: Host, place: Place) -> tuple[str, ...]:
    lacking = lacks("isolated", host)
    if lacking is not None or host.bubblewrap is None:
        raise ProfileRefused(lacking or "")
    command = [host.bubblewrap, "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    room = str(limits.file_mb * _MIB)
    command += ["--proc", "/proc", "--dev", "/dev", "--size", room, "--tmpfs", "/tmp"]
    command += ["--size", room, "--tmpfs", "/dev/shm"]
    for path in (*_SYSTEM, *place.code, *limits.readable):
        command += ["--ro-bind-try", path, path]
    for path in (place.folder, *limits.writable):
        command += ["--bind", path, path]
    return (*command, "--remount-ro", "/", "--chdir", place.folder, "--")

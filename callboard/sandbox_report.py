"""What the sandbox profiles really hold on this machine: each is tried on a tool that tries to get out.

A profile is not said to hold because the kernel has a name for it: the attempts are made. Called by
``callboard doctor sandbox``.
"""

from __future__ import annotations

import os
import socket
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from callboard.one_call import run_one
from callboard.tools.content import JsonBlock, TextBlock
from callboard.tools.contract import ToolSpec
from callboard.tools.limits import PROFILES, Limits, Profile
from callboard.tools.sandbox_host import host
from callboard.tools.sandbox_plan import Host, lacks

_ELSEWHERE = "elsewhere watched only, a fork bomb is NOT held"
_PROBE = ToolSpec(
    name="probe",
    description="",
    parameters={},
    deadline_s=20.0,
    module="callboard.sandbox_probe",
    attribute="probe",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileReport:
    """One profile. ``lacking`` says why it cannot be had, empty when it can; ``walls`` are (attempt, breached)."""

    name: Profile
    lacking: str = ""
    walls: tuple[tuple[str, bool], ...] = ()

    @property
    def breaches(self) -> int:
        """How many attempts got through."""
        return sum(breached for _, breached in self.walls)


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxReport:
    """The machine as a whole: the strongest profile to be had, all of them, and (limit, how it is held here)."""

    strongest: Profile
    profiles: tuple[ProfileReport, ...]
    limits: tuple[tuple[str, str], ...]


def examine() -> SandboxReport:
    """Try every profile; takes a second or two."""
    found = host()
    profiles = (ProfileReport(name="none"), *(_tried(profile, found) for profile in PROFILES[1:]))
    strongest = [profile.name for profile in profiles if not profile.lacking and not profile.breaches][-1]
    return SandboxReport(strongest=strongest, profiles=profiles, limits=_limits(found, profiles))


def _tried(profile: Profile, found: Host) -> ProfileReport:
    lacking = lacks(profile, found)
    if lacking is not None:
        return ProfileReport(name=profile, lacking=lacking)
    with (
        tempfile.TemporaryDirectory(prefix="callboard-doctor-") as folder,
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as letters,
    ):
        secret = Path(folder) / "secret"
        secret.write_text("a secret", encoding="ascii")
        mail = str(Path(folder) / "mail")
        letters.bind(mail)
        targets = {
            "file": str(secret),
            "folder": folder,
            "port": server.getsockname()[1],
            "mail": mail,
            "pid": os.getpid(),
        }
        spec = replace(_PROBE, limits=Limits(sandbox=profile))
        result = run_one(spec, {"targets": targets})
    match result.content:
        case (JsonBlock(value),) if not result.is_error:
            return ProfileReport(name=profile, walls=tuple((what, bool(got)) for what, got in value.items()))
        case (TextBlock(text), *_):
            return ProfileReport(name=profile, lacking=text)
    return ProfileReport(name=profile, lacking="the probe gave no answer")


def _limits(found: Host, profiles: tuple[ProfileReport, ...]) -> tuple[tuple[str, str], ...]:
    isolated = next(profile for profile in profiles if profile.name == "isolated")
    if isolated.lacking:
        processes = "watched only; a fork bomb is NOT held: the profile isolated is not to be had"
    elif found.is_root:
        processes = f"in isolated: watched, and ended with its namespace; {_ELSEWHERE}"
    else:
        processes = f"in isolated: by the kernel and watched; {_ELSEWHERE}"
    return (
        ("deadline", "the client ends the call's processes"),
        ("memory", "by the kernel for each process, watched for all of them"),
        ("CPU time", "by the kernel for each process, watched for all of them"),
        ("open files", "by the kernel"),
        ("file size", "by the kernel; the private folder is watched"),
        ("output", "by the client"),
        ("processes", processes),
    )

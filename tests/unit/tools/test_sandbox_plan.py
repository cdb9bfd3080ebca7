"""The plan of a call: its environment, its steps, and the command that it is started through."""

from __future__ import annotations

import pytest

from callboard.tools.limits import Limits
from callboard.tools.sandbox_plan import Host, Place, ProfileRefused, lacks, make_plan

PLACE = Place(folder="/tmp/own", code=("/opt/python", "/srv/tools.py"))
ABLE = Host(landlock=7, seccomp=True, bubblewrap="/usr/bin/bwrap")
ENVIRON = {
    "PATH": "/bin",
    "HOME": "/home/ann",
    "LC_ALL": "C",
    "OPENAI_API_KEY": "sk",
    "TOKEN": "t",
    "TZ": "UTC",
}


def test_without_a_profile_the_call_is_a_fork_with_limits() -> None:
    plan = make_plan(Limits(memory_mb=64, cpu_s=1.5, open_files=32, file_mb=2), Host(), PLACE, ENVIRON)
    assert (plan.by_exec, plan.exec_prefix, plan.cwd) == (False, (), None)
    assert plan.steps == (
        ("no_new_privileges", ()),
        ("rlimit", ("CORE", 0, 0)),
        ("rlimit", ("NOFILE", 32, 32)),
        ("rlimit", ("FSIZE", 2 << 20, 2 << 20)),
        ("rlimit", ("CPU", 2, 3)),
        ("memory", (64,)),
    )


def test_the_environment_is_the_usual_one_and_what_is_named() -> None:
    plan = make_plan(Limits(env=("TOKEN", "MISSING")), Host(), PLACE, ENVIRON)
    assert plan.environment == {
        "PATH": "/bin",
        "HOME": "/home/ann",
        "LC_ALL": "C",
        "TOKEN": "t",
        "TZ": "UTC",
        "TMPDIR": "/tmp/own",
    }
    walled = make_plan(Limits(sandbox="isolated"), ABLE, PLACE, ENVIRON)
    assert walled.environment["HOME"] == "/tmp/own"
    assert "TOKEN" not in walled.environment


def test_confined_is_walls_around_a_process_of_its_own() -> None:
    plan = make_plan(
        Limits(sandbox="confined", readable=("/data",), writable=("/out",)), ABLE, PLACE, ENVIRON
    )
    assert (plan.by_exec, plan.exec_prefix, plan.cwd) == (True, (), "/tmp/own")
    readable = {step[1][1] for step in plan.steps if step[0] == "landlock" and step[1][0] == "read"}
    writable = {step[1][1] for step in plan.steps if step[0] == "landlock" and step[1][0] == "write"}
    assert {"/usr", "/opt/python", "/srv/tools.py", "/data"} <= readable
    assert {"/tmp/own", "/out", "/dev/null"} <= writable
    assert not {"/home/ann", "/etc", "/etc/shadow", "/proc", "/"} & (readable | writable)
    assert plan.steps[0] == ("no_new_privileges", ()), "Landlock and seccomp need it first"
    assert plan.steps[-2:] == (("landlock", ("enter",)), ("no_sockets", ()))


def test_isolated_is_started_through_bubblewrap() -> None:
    plan = make_plan(Limits(sandbox="isolated", readable=("/data",), file_mb=5), ABLE, PLACE, ENVIRON)
    prefix = " ".join(plan.exec_prefix)
    assert prefix.startswith("/usr/bin/bwrap --unshare-all --die-with-parent --new-session --cap-drop ALL ")
    assert prefix.endswith("--remount-ro / --chdir /tmp/own --")
    assert "--ro-bind-try /data /data" in prefix
    assert "--bind /tmp/own /tmp/own" in prefix
    assert f"--size {5 << 20} --tmpfs /tmp" in prefix
    assert ("rlimit", ("NPROC", 256, 256)) in plan.steps
    as_root = make_plan(
        Limits(sandbox="isolated"), Host(bubblewrap="/usr/bin/bwrap", is_root=True), PLACE, ENVIRON
    )
    assert not any(step[1][:1] == ("NPROC",) for step in as_root.steps), "root is exempt: it would not hold"


@pytest.mark.parametrize(
    ("profile", "host", "says"),
    [
        ("confined", Host(seccomp=True), "no Landlock"),
        ("confined", Host(landlock=1), "architecture"),
        ("isolated", Host(landlock=7, seccomp=True), "bubblewrap"),
    ],
)
def test_what_the_host_cannot_give_is_refused_never_weakened(profile: str, host: Host, says: str) -> None:
    with pytest.raises(ProfileRefused, match=says):
        make_plan(Limits(sandbox=profile), host, PLACE, ENVIRON)  # type: ignore[arg-type]
    assert says in (lacks(profile, host) or "")


def test_every_profile_can_be_had_on_an_able_host() -> None:
    assert [lacks(profile, ABLE) for profile in ("none", "confined", "isolated")] == [None] * 3

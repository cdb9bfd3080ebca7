"""The actor mail over real processes: who gets what, in which order, who is refused, and what is left behind."""

from __future__ import annotations

import array
import os
import pickle
import random
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from callboard.testing.turns import eventually
from callboard.transports import datagrams, mail, memfd, unix_socket
from callboard.transports.mail_errors import MailError

ACTORS = "mail_test_actors.Probe"
NOBODY = 65534
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to send as a second user")


class Opened:
    """An actor system in a folder, with what the tests ask of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "mail"
        self.closed = False
        self.handle = mail.open_system(folder, "unix")
        self.system = self.handle._system

    def probe(self) -> Any:
        return self.system.createActor(ACTORS)

    def ask(self, actor: Any, *command: Any, seconds: float = 15.0) -> Any:
        return self.system.ask(actor, command, timedelta(seconds=seconds))

    def tell(self, actor: Any, *command: Any) -> None:
        self.system.tell(actor, command)

    def child_of(self, actor: Any) -> tuple[int, Any]:
        """Have the actor create a child; gives its pid and address."""
        self.tell(actor, "child")
        while True:
            found = self.system.listen(timedelta(seconds=10))
            assert found is not None
            if isinstance(found, tuple):
                return found

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.system.shutdown()
            self.handle.close()


@pytest.fixture
def open_mail(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], Opened]]:
    """Open systems that are closed with the test."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    with ExitStack() as stack:

        def opened(folder: Path) -> Opened:
            made = Opened(folder)
            stack.callback(made.close)
            return made

        yield opened


@pytest.fixture
def opened(open_mail: Callable[[Path], Opened], tmp_path: Path) -> Opened:
    return open_mail(tmp_path)


# -------------------------------------------------------------------- delivery


def test_order_is_kept_from_sender_to_target_through_a_flood(opened: Opened) -> None:
    sender, target = opened.probe(), opened.probe()
    opened.tell(sender, "flood", target, 5000)
    assert eventually(lambda: len(opened.ask(target, "seen")) == 5000, within_s=20)
    assert opened.ask(target, "seen") == list(range(5000))


def test_two_actors_flood_each_other_and_stay_responsive(opened: Opened) -> None:
    one, two = opened.probe(), opened.probe()
    opened.tell(one, "flood", two, 3000)
    opened.tell(two, "flood", one, 3000)
    assert opened.ask(one, "echo", "there?", seconds=10) == "there?"
    for actor in (one, two):
        assert eventually(lambda actor=actor: len(opened.ask(actor, "seen")) == 3000, within_s=20)


@pytest.mark.parametrize("size", [0, 60_000, 65_500, 65_536, 70_000, 1 << 20, 50 << 20])
def test_a_payload_of_any_size_arrives_whole(opened: Opened, size: int) -> None:
    body = os.urandom(1024) * (size // 1024) + b"x" * (size % 1024)
    assert opened.ask(opened.probe(), "echo", body, seconds=30) == body


def test_a_message_beyond_the_limit_is_an_error_to_its_sender(opened: Opened) -> None:
    actor = opened.probe()
    with pytest.raises(MailError, match="one message may have"):
        opened.tell(actor, "length", b"x" * (datagrams.MAX_MESSAGE + 1))
    assert opened.ask(actor, "echo", 1) == 1


def test_a_stopped_target_delays_nobody_elses_mail_and_gets_all_of_its_own(opened: Opened) -> None:
    sender, stopped, other = opened.probe(), opened.probe(), opened.probe()
    pid = opened.ask(stopped, "who")[0]
    os.kill(pid, signal.SIGSTOP)
    opened.tell(sender, "flood", stopped, 2000)
    opened.tell(sender, "flood", other, 2000)
    assert eventually(lambda: len(opened.ask(other, "seen")) == 2000)
    assert opened.ask(sender, "waiting") > 1900
    os.kill(pid, signal.SIGCONT)
    assert eventually(lambda: len(opened.ask(stopped, "seen")) == 2000)
    assert opened.ask(stopped, "seen") == list(range(2000))
    assert eventually(lambda: opened.ask(sender, "waiting") == 0)


def test_what_a_full_outbox_refuses_comes_back_to_its_sender(opened: Opened) -> None:
    sender, stopped = opened.probe(), opened.probe()
    assert opened.ask(sender, "bound", 100) == "bound"
    os.kill(opened.ask(stopped, "who")[0], signal.SIGSTOP)
    try:
        opened.tell(sender, "flood", stopped, 300)
        seen = eventually(lambda: opened.ask(sender, "seen"))
        assert 150 < seen.count("poison") < 200
        assert opened.ask(sender, "counts")["Mail.Failed.Outbox Full"] == seen.count("poison")
    finally:
        for process in psutil.Process().children(recursive=True):
            process.send_signal(signal.SIGCONT)
    assert eventually(lambda: len(opened.ask(stopped, "seen")) == 300 - seen.count("poison"))


def test_mail_that_waits_for_an_actor_that_is_killed_is_reported_dead(opened: Opened) -> None:
    sender, target, undertaker = opened.probe(), opened.probe(), opened.probe()
    opened.tell(undertaker, "dead letters")
    pid = opened.ask(target, "who")[0]
    os.kill(pid, signal.SIGSTOP)
    opened.tell(sender, "flood", target, 1000)
    assert eventually(lambda: opened.ask(sender, "waiting") > 900)
    os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: opened.ask(sender, "waiting") == 0)
    dead = opened.ask(sender, "counts")["Mail.Failed.Dead Target"]
    assert dead > 900
    assert eventually(lambda: len(opened.ask(undertaker, "seen")) == dead)


def test_a_dead_target_is_known_at_once(opened: Opened) -> None:
    target = opened.probe()
    path = Path(target.addressDetails.path)
    os.kill(opened.ask(target, "who")[0], signal.SIGKILL)
    assert eventually(lambda: not path.exists())
    began = time.monotonic()
    assert opened.ask(target, "echo", 1, seconds=30) is None
    assert time.monotonic() - began < 5


def test_a_childs_last_words_are_delivered_before_its_exit(opened: Opened) -> None:
    for _ in range(5):
        parent = opened.probe()
        _, child = opened.child_of(parent)
        opened.tell(child, "last words", parent, 8)
        assert eventually(lambda parent=parent: "exited" in opened.ask(parent, "seen"))
        assert opened.ask(parent, "seen")[:9] == [*range(8), "exited"]


def test_wakeups_that_are_overdue_come_in_order(opened: Opened) -> None:
    actor = opened.probe()
    opened.tell(actor, "wake", [0.03, 0.01, 0.02])
    opened.tell(actor, "block", 0.2)
    assert eventually(lambda: len(opened.ask(actor, "seen")) == 3)
    assert opened.ask(actor, "seen") == [0.01, 0.02, 0.03]


def test_a_watched_descriptor_is_reported_and_may_be_closed(opened: Opened) -> None:
    actor = opened.probe()
    opened.tell(actor, "watch")
    assert eventually(lambda: opened.ask(actor, "seen") == [b"hello"])


# -------------------------------------------------------------------- processes, descriptors, files


def test_a_child_costs_its_parent_no_descriptor_and_inherits_no_socket(opened: Opened) -> None:
    parent = opened.probe()
    before = opened.ask(parent, "fds")
    pids = [opened.child_of(parent)[0] for _ in range(10)]
    assert opened.ask(parent, "fds") == before
    inodes = [_socket_inodes(pid) for pid in (opened.ask(parent, "who")[0], *pids)]
    assert all(len(found) == 1 for found in inodes)
    assert len(set().union(*inodes)) == 11


def test_a_killed_actors_socket_is_removed_by_its_parent(opened: Opened) -> None:
    parent = opened.probe()
    pid, child = opened.child_of(parent)
    path = Path(child.addressDetails.path)
    assert path.is_socket()
    os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: not path.exists())


def test_a_name_is_not_used_again_so_mail_for_a_former_life_is_lost(opened: Opened) -> None:
    parent = opened.probe()
    pid, child = opened.child_of(parent)
    os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: opened.ask(parent, "seen") == ["exited"])
    _, again = opened.child_of(parent)
    opened.tell(child, "note", "for the former")
    assert str(again) != str(child)
    assert opened.ask(again, "seen") == []


def test_nothing_is_left_of_a_system_not_even_of_one_whose_actors_were_killed(
    open_mail: Callable[[Path], Opened], tmp_path: Path
) -> None:
    others = set(psutil.Process().children(recursive=True))
    opened = open_mail(tmp_path)
    actor = opened.probe()
    opened.child_of(actor)
    os.kill(opened.ask(actor, "who")[0], signal.SIGKILL)
    opened.close()
    assert eventually(lambda: _remove(opened, others))


def _remove(opened: Opened, others: set[psutil.Process]) -> bool:
    for process in set(psutil.Process().children(recursive=True)) - others:
        process.kill()
    opened.handle.close()
    return not opened.folder.exists()


def test_two_systems_side_by_side_and_an_outsider_who_talks_to_both(
    open_mail: Callable[[Path], Opened], tmp_path: Path
) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir(mode=0o700)
    systems = [open_mail(folder) for folder in folders]
    actors = [each.probe() for each in systems]
    endpoint = mail.Endpoint(folders[0], "unix")
    try:
        for number, actor in enumerate(actors):
            address = pickle.loads(pickle.dumps(actor))
            endpoint.send(address, ("echo", number))
            assert endpoint.receive(10) == number
    finally:
        endpoint.close()


def test_an_endpoint_never_waits_for_a_stopped_target(opened: Opened, tmp_path: Path) -> None:
    actor = opened.probe()
    pid = opened.ask(actor, "who")[0]
    endpoint = mail.Endpoint(tmp_path, "unix")
    os.kill(pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        for number in range(100):
            endpoint.send(actor, ("echo", number))
        assert time.monotonic() - began < 2
        os.kill(pid, signal.SIGCONT)
        assert [endpoint.receive(10) for _ in range(100)] == list(range(100))
    finally:
        os.kill(pid, signal.SIGCONT)
        endpoint.close()


def test_stale_sockets_of_a_former_life_are_swept_and_living_ones_stay(
    open_mail: Callable[[Path], Opened], tmp_path: Path
) -> None:
    folder = tmp_path / "mail"
    folder.mkdir(mode=0o700)
    unix_socket.bind(f"{folder}/stale").close()
    living = unix_socket.bind(f"{folder}/living")
    try:
        opened = open_mail(tmp_path)
        assert (folder / "stale").exists(), "too young to be sure"
        opened.close()
        # The admin answers, and then leaves by itself.
        assert eventually(lambda: [path.name for path in folder.iterdir()] == ["living"])
    finally:
        living.close()


# -------------------------------------------------------------------- security (T1 to T9 of the actor mail)


class Evil:
    """Writes the marker when it is unpickled."""

    def __init__(self, marker: str) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path(self.marker),)


def test_t1_a_running_system_has_no_tcp_or_udp_port(system: Any) -> None:
    pid = system.status().pid
    assert list(system.conversation().ask("good morning"))[-1].type == "turn_answered"
    tree = [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    ours = set().union(*(_socket_inodes(each) for each in tree))
    assert len(ours) > 5
    assert not ours & _ports()
    # Who holds secrets lets nobody but root see its descriptors: all that this user has open must be others', who do.
    if os.geteuid() != 0:
        before, open_now, after = _sockets_outside(tree), _ports(os.geteuid()), _sockets_outside(tree)
        assert open_now <= before | after


@pytest.fixture
def exposed(open_mail: Callable[[Path], Opened]) -> Iterator[Opened]:
    """A system whose folder and sockets were opened to everyone by mistake."""
    with tempfile.TemporaryDirectory(prefix="exposed-", dir="/tmp") as folder:
        opened = open_mail(Path(folder))
        yield opened
        opened.folder.chmod(0o700)
        opened.close()


def _expose(opened: Opened) -> None:
    opened.folder.parent.chmod(0o777)
    opened.folder.chmod(0o777)
    for path in opened.folder.iterdir():
        path.chmod(0o666)


@ROOT_ONLY
@pytest.mark.parametrize("large", [False, True], ids=["inline", "memory file"])
def test_t2_an_evil_pickle_of_another_user_is_refused_and_counted(exposed: Opened, large: bool) -> None:
    actor = exposed.probe()
    marker = exposed.folder.parent / "marker"
    _expose(exposed)
    body = pickle.dumps(Evil(str(marker)))
    for path in sorted(exposed.folder.iterdir()):
        _send_as_nobody(path, body, large)
    assert eventually(lambda: exposed.ask(actor, "counts").get("Mail.Refused.Foreign User") == 1)
    assert not marker.exists()
    _send(Path(actor.addressDetails.path), [body])
    assert eventually(marker.exists), (
        "the same pickle of our own user is unpickled: the test sends what it says"
    )


@ROOT_ONLY
def test_t3_a_forged_exit_or_shutdown_of_another_user_is_refused(exposed: Opened) -> None:
    from thespian.actors import ActorExitRequest
    from thespian.system.messages.admin import SystemShutdown

    actor = exposed.probe()
    _expose(exposed)
    for path in sorted(exposed.folder.iterdir()):
        _send_as_nobody(path, pickle.dumps(ActorExitRequest()), False)
        _send_as_nobody(path, pickle.dumps(SystemShutdown()), False)
    assert eventually(lambda: exposed.ask(actor, "counts").get("Mail.Refused.Foreign User") == 2)
    exposed.folder.chmod(0o700)
    assert exposed.ask(exposed.probe(), "echo", 1) == 1, "the admin lives"


@ROOT_ONLY
def test_t4_a_folder_that_somebody_else_made_first_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mail").mkdir()
    os.chown(tmp_path / "mail", NOBODY, NOBODY)
    for act in (lambda: mail.open_system(tmp_path, "unix"), lambda: mail.Endpoint(tmp_path, "unix")):
        with pytest.raises(MailError, match="belongs to user id 65534"):
            act()


def test_t5_a_payload_that_claims_ten_gigabytes_is_refused_without_memory(opened: Opened) -> None:
    actor = opened.probe()
    pid = opened.ask(actor, "who")[0]
    before = psutil.Process(pid).memory_info().rss
    fd = memfd.seal([b"small"])
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as via:
        for size in (10 << 30, datagrams.MAX_MESSAGE, 6):
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
            via.sendmsg([datagrams.encode_memory(b"/x", size)], rights, 0, _path(actor))
    os.close(fd)
    assert eventually(lambda: opened.ask(actor, "counts").get("Mail.Refused.Malformed") == 3)
    assert psutil.Process(pid).memory_info().rss - before < 10 << 20


def test_t6_two_hundred_idle_peers_harm_nobody(opened: Opened) -> None:
    actor = opened.probe()
    with ExitStack() as stack:
        for _ in range(200):
            peer = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            peer.connect(_path(actor))
        began = time.monotonic()
        assert opened.ask(actor, "echo", 1) == 1
        assert time.monotonic() - began < 2


def test_t7_the_mail_is_closed_to_everyone_else_by_its_modes(opened: Opened) -> None:
    opened.probe()
    assert opened.folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in opened.folder.iterdir()} == {0o600}


def test_t9_ten_thousand_mutated_datagrams_and_descriptors_kill_no_actor(
    opened: Opened, tmp_path: Path
) -> None:
    actor = opened.probe()
    pid, fds, marker = opened.ask(actor, "who")[0], opened.ask(actor, "fds"), tmp_path / "marker"
    chance = random.Random(4)
    body = pickle.dumps(Evil(str(marker)))
    payload, unsealed = memfd.seal([body]), os.memfd_create("unsealed")
    whole = [datagrams.encode(b"/sender", [body, body]), datagrams.encode_memory(b"/sender", len(body))]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as via:
            via.connect(_path(actor))
            for _ in range(10_000):
                data = _mutate(bytearray(chance.choice(whole)), chance)
                given = chance.choices([payload, unsealed, 0], k=chance.choice([0, 0, 1, 2, 7]))
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", given))] if given else []
                via.sendmsg([data], rights)
    finally:
        os.close(payload)
        os.close(unsealed)
    assert opened.ask(actor, "echo", "alive", seconds=30) == "alive"
    assert opened.ask(actor, "who")[0] == pid
    assert opened.ask(actor, "counts")["Mail.Refused.Malformed"] == 10_000
    assert opened.ask(actor, "fds") == fds
    assert not marker.exists()


def test_a_message_that_cannot_be_unpickled_is_counted_and_the_next_one_is_read(opened: Opened) -> None:
    actor = opened.probe()
    _send(Path(actor.addressDetails.path), [b"cno_such_module\nx\n.", b"", b"\x80\x05garbage"])
    assert opened.ask(actor, "counts").get("Mail.Refused.Not Unpicklable") == 3


def test_the_stock_base_stays_selectable_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLBOARD_MAIL", "tcp")
    with pytest.warns(RuntimeWarning, match="comparison only"):
        handle = mail.open_system(tmp_path)
    handle._system.shutdown()
    handle.close()
    assert not (tmp_path / "mail").exists()


def test_an_unknown_choice_of_mail_says_what_is_expected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLBOARD_MAIL", "pigeons")
    with pytest.raises(MailError, match="CALLBOARD_MAIL=pigeons: expected unix"):
        mail.open_system(tmp_path)


# -------------------------------------------------------------------- what the tests use


def _mutate(data: bytearray, chance: random.Random) -> bytes:
    """Change bytes, cut, or lengthen: never into what it was."""
    original = bytes(data)
    while bytes(data) == original:
        match chance.randrange(4):
            case 0:
                del data[chance.randrange(len(data)) :]
            case 1:
                data += chance.randbytes(chance.choice([1, 100, 90_000]))
            case _:
                for _ in range(chance.randint(1, 8)):
                    at = chance.choice([*range(5), *range(6, len(data))]) if data else 0
                    data[at : at + 1] = chance.randbytes(1)
    return bytes(data) or b"?"


def _path(actor: Any) -> str:
    """Give an actor's path in a form that the kernel takes, however long the test's folder is."""
    path = Path(actor.addressDetails.path)
    return os.path.relpath(path) if len(str(path)) > 107 else str(path)


def _send(path: Path, bodies: list[bytes]) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as via:
        via.sendto(datagrams.encode(b"/stranger", bodies), str(path))


def _send_as_nobody(path: Path, body: bytes, large: bool) -> None:
    """Send the body from a process of another user; with several users' sockets opened to all, it can."""
    fd = memfd.seal([body])
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as via:
                if large:
                    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
                    via.sendmsg([datagrams.encode_memory(b"/evil", len(body))], rights, 0, str(path))
                else:
                    via.sendto(datagrams.encode(b"/evil", [body]), str(path))
            code = 0
        finally:
            os._exit(code)
    os.close(fd)
    assert os.waitpid(pid, 0)[1] == 0, f"could not send to {path} as another user"


def _socket_inodes(pid: int) -> set[str]:
    found: set[str] = set()
    try:
        entries = list(Path(f"/proc/{pid}/fd").iterdir())
    except (PermissionError, FileNotFoundError):
        return found
    for entry in entries:
        try:
            target = os.readlink(entry)
        except FileNotFoundError:
            continue
        if target.startswith("socket:["):
            found.add(target[8:-1])
    return found


def _sockets_outside(tree: list[int]) -> set[str]:
    return set().union(*(_socket_inodes(pid) for pid in psutil.pids() if pid not in tree))


def _ports(uid: int | None = None) -> set[str]:
    """Give the inodes of all listening TCP sockets and all bound UDP ones, of one user where ``uid`` is given."""
    found = set()
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
            fields = line.split()
            if uid is not None and int(fields[7]) != uid:
                continue
            if table.startswith("udp") or fields[3] == "0A":
                found.add(fields[9])
    return found


assert sys.platform == "linux"

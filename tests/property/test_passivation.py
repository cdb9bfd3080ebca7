"""The leaving protocol as a whole: the directory's desks, clients, their supervisor and lossy mail, in any order.

A message at every point, losses, crashes of client and directory: every request is answered, done once, and by the only
owner there is; and in the end nothing is left at the desks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from callboard.actors.client_leaving import Leaving
from callboard.actors.directory_desk import Desks
from callboard.actors.directory_terms import (
    Answer,
    Arrived,
    ClientGone,
    ClientStopped,
    ClientUp,
    Effect,
    ExpectGone,
    HandOver,
    Key,
    LeaveAsked,
    Look,
    Looked,
    Revive,
    Start,
    Stop,
    Watch,
)
from callboard.actors.messages import Mark, MayLeave, News, StayHere
from callboard.supervisor.envelope import Envelope

KEYS: tuple[Key, ...] = (("red", "a"), ("blue", "a"))


@dataclass
class Client:
    """One process: what the supervisor calls it, what is in its mailbox, and its side of the protocol."""

    key: Key
    incarnation: int
    leaving: Leaving = field(default_factory=lambda: Leaving(0.0, 0.0))
    inbox: deque[Any] = field(default_factory=deque)
    asked: int = 0
    is_alive: bool = True


@dataclass(frozen=True)
class Handed:
    """A letter on its way to a client."""

    letter: Envelope
    mark: Mark


@dataclass(frozen=True)
class Permit:
    """The directory's answer to a client's wish, with the life that gave it."""

    asked: int
    body: MayLeave | StayHere
    life: int


class World(RuleBasedStateMachine):
    """The processes and the mail between them; a rule is one step of one of them."""

    is_lossy = True

    def __init__(self) -> None:
        super().__init__()
        self.life = 1
        self.desks = Desks(1)
        self.to_directory: deque[tuple[Callable[[], Any], Any]] = deque()
        self.starts: deque[tuple[int, Start]] = deque()
        self.clients: dict[Key, Client] = {}
        self.incarnations = 0
        self.watched: set[tuple[int, int]] = set()
        self.permitted: set[tuple[int, int]] = set()
        self.open: dict[str, Arrived] = {}
        self.done: list[str] = []
        self.answered: set[str] = set()

    # ------------------------------------------------------------ the callers
    @rule(key=st.sampled_from(KEYS))
    def ask(self, key: Key) -> None:
        name = f"r{len(self.open) + len(self.answered)}"
        arrived = Arrived(key=key, letter=Envelope(request_id=name, body=key, reply_to="caller"))
        self.open[name] = arrived
        self.send(arrived)

    @precondition(lambda self: self.is_lossy and self.open)
    @rule(data=st.data())
    def ask_again(self, data: st.DataObject) -> None:
        self.send(self.open[data.draw(st.sampled_from(sorted(self.open)))])

    @rule(key=st.sampled_from(KEYS))
    def follow(self, key: Key) -> None:
        """A follower that was told that the conversation rests gives a sign of life."""
        self.send(
            Arrived(key=key, letter=Envelope(request_id="f", body="follow", reply_to="follower"), wakes=False)
        )

    # ------------------------------------------------------------ the directory
    def send(self, event: Any) -> None:
        self.to_directory.append(event)

    @precondition(lambda self: self.to_directory)
    @rule()
    def directory_takes_one(self) -> None:
        event = self.to_directory.popleft()
        for effect in self.desks.handle(event):
            self.perform(effect)

    def perform(self, effect: Effect) -> None:
        match effect:
            case Start():
                self.starts.append((self.life, effect))
            case Watch(key, incarnation, _):
                client = self.clients.get(key)
                if client is not None and client.incarnation == incarnation:
                    self.watched.add((self.life, incarnation))
                else:
                    self.send(ClientGone(key, incarnation))
            case HandOver(address, letter, mark):
                assert (self.life, address.incarnation) not in self.permitted, "mail to one who may leave"
                address.inbox.append(Handed(letter, mark))
            case Answer(letter, MayLeave() | StayHere() as body):
                asker: Client = letter.reply_to
                if isinstance(body, MayLeave):
                    self.permitted.add((self.life, asker.incarnation))
                asker.inbox.append(Permit(letter.body, body, self.life))
            case Answer(letter, News()):
                assert letter.request_id == "f"
            case Answer(letter, body):
                raise AssertionError(f"{letter} was answered with {body}")
            case Look(key, letter):
                self.send(Looked(key, letter, key in self.clients))
            case Stop(key):
                client = self.clients.get(key)
                if client is not None:
                    self.end(client)
                self.send(ClientStopped(key))
            case ExpectGone() | Revive():
                pass

    @precondition(lambda self: self.is_lossy)
    @rule()
    def directory_crashes(self) -> None:
        self.life += 1
        self.desks = Desks(self.life)
        self.to_directory.clear()
        self.starts = deque(start for start in self.starts if start[0] == self.life)

    # ------------------------------------------------------------ the supervisor
    @precondition(lambda self: self.starts)
    @rule()
    def supervisor_starts_one(self) -> None:
        _, start = self.starts.popleft()
        client = self.clients.get(start.key) or self.new_client(start.key)
        up = ClientUp(key=start.key, address=client, pid=client.incarnation, incarnation=client.incarnation)
        self.send(up)

    def new_client(self, key: Key) -> Client:
        self.incarnations += 1
        self.clients[key] = Client(key, self.incarnations)
        return self.clients[key]

    def end(self, client: Client) -> None:
        client.is_alive = False
        del self.clients[client.key]
        if (self.life, client.incarnation) in self.watched:
            self.send(ClientGone(client.key, client.incarnation))

    # ------------------------------------------------------------ the clients
    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def client_takes_one(self, data: st.DataObject) -> None:
        self.take(self.clients[data.draw(st.sampled_from(sorted(self.clients)))])

    def take(self, client: Client) -> None:
        match client.inbox.popleft() if client.inbox else None:
            case Handed(letter, mark):
                client.leaving.handed(mark)
                if letter.request_id == "f":
                    return
                assert letter.body == client.key, "another team's mail"
                if letter.request_id not in self.done:
                    self.done.append(letter.request_id)
                self.answered.add(letter.request_id)
                self.open.pop(letter.request_id, None)
            case Permit(asked, body, life) if asked == client.asked:
                goes, _ = client.leaving.answered(body, 0.0, is_idle=True)
                if goes:
                    later = [m for m in client.inbox if isinstance(m, Handed) and m.mark[0] == life]
                    assert not later, "it leaves with mail of the life that let it go"
                    self.end(client)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def client_asks_to_leave(self, data: st.DataObject) -> None:
        client = self.clients[data.draw(st.sampled_from(sorted(self.clients)))]
        self.wish(client)

    def wish(self, client: Client) -> None:
        client.asked += 1
        letter = Envelope(request_id="leave", body=client.asked, reply_to=client)
        self.send(
            LeaveAsked(
                key=client.key,
                letter=letter,
                incarnation=client.incarnation,
                pid=client.incarnation,
                mark=client.leaving.ask(),
            )
        )

    @precondition(lambda self: self.is_lossy and self.clients)
    @rule(data=st.data(), is_restarted=st.booleans())
    def client_crashes(self, data: st.DataObject, is_restarted: bool) -> None:
        client = self.clients[data.draw(st.sampled_from(sorted(self.clients)))]
        self.end(client)
        if is_restarted:
            self.new_client(client.key)

    @rule(steps=st.integers(1, 12))
    def everyone_goes_on(self, steps: int) -> None:
        """So many steps of each: what a random order of single ones comes to too rarely."""
        for _ in range(steps):
            if self.starts:
                self.supervisor_starts_one()
            if self.to_directory:
                self.directory_takes_one()
            for client in list(self.clients.values()):
                self.take(client)

    # ------------------------------------------------------------ the mail
    @precondition(lambda self: self.is_lossy and self.to_directory)
    @rule()
    def mail_to_the_directory_is_lost(self) -> None:
        if isinstance(self.to_directory[0], Arrived | LeaveAsked):
            self.to_directory.popleft()

    @precondition(lambda self: self.is_lossy and self.clients)
    @rule(data=st.data())
    def mail_to_a_client_is_lost(self, data: st.DataObject) -> None:
        client = self.clients[data.draw(st.sampled_from(sorted(self.clients)))]
        if client.inbox:
            client.inbox.popleft()

    # ------------------------------------------------------------ what must hold
    @invariant()
    def nothing_is_done_twice(self) -> None:
        assert len(self.done) == len(set(self.done))

    @invariant()
    def who_may_leave_has_taken_all_its_mail(self) -> None:
        for client in self.clients.values():
            if (self.life, client.incarnation) in self.permitted:
                handed = [m for m in client.inbox if isinstance(m, Handed) and m.mark[0] == self.life]
                assert not handed, "it was let go with mail on its way"

    def teardown(self) -> None:
        """Without further losses all is answered and everyone leaves; who lost nothing need not ask again."""
        for _ in range(50):
            for arrived in list(self.open.values()) if self.is_lossy else []:
                self.send(arrived)
            for client in list(self.clients.values()):
                self.wish(client)
            self.everyone_goes_on(20)
            if not self.open and not self.clients and not self.to_directory:
                break
        assert not self.open, "a request was lost"
        assert not self.clients, "a client never left"
        assert len(self.desks) == 0, "a desk was left behind"


class CalmWorld(World):
    """Nothing is lost and nobody crashes: then every letter is kept until it is handed over."""

    is_lossy = False


_SETTINGS = settings(
    max_examples=100, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestPassivation = World.TestCase
TestPassivation.settings = _SETTINGS
TestCalmPassivation = CalmWorld.TestCase
TestCalmPassivation.settings = _SETTINGS

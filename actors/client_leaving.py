"""When an idle client may go (DESIGN, decision 6): its side of the protocol whose other side is ``directory_desk.py``.

It keeps the mark of the last letter and the instant of the last thing that happened. Idle for long enough, the client
asks to leave under that mark; what it does with the answer is said here. Pure: the client actor has the clock and the
mail.
"""

from __future__ import annotations

from callboard.actors.messages import Mark, MayLeave, StayHere

_BUSY_LOOK_S = 30.0
_ASK_AGAIN_S = 0.05


class Leaving:
    """``after_s``: how long nothing must have happened before the client asks to leave."""

    def __init__(self, after_s: float, now: float) -> None:
        self.mark: Mark | None = None
        self._after_s = after_s
        self._active_at = now
        self._asked_under: Mark | None = None
        self._must = False

    def handed(self, mark: Mark) -> None:
        """Note the last letter."""
        self.mark = mark

    def touch(self, now: float) -> None:
        """Something happened that keeps the conversation awake."""
        self._active_at = max(self._active_at, now)

    def hurry(self, after_s: float) -> None:
        """There is nothing to stay for: ask after ``after_s`` seconds at the most."""
        self._after_s = min(self._after_s, after_s)

    def wait_s(self, now: float, *, is_idle: bool) -> float:
        """Give the seconds until the client should look again; 0: it is to ask now."""
        if self._must:
            return 0.0 if is_idle else _ASK_AGAIN_S
        if not is_idle:
            return min(self._after_s, _BUSY_LOOK_S) or _ASK_AGAIN_S
        return max(0.0, self._active_at + self._after_s - now)

    def ask(self) -> Mark | None:
        """Give the mark to ask under."""
        self._asked_under = self.mark
        return self.mark

    def answered(self, answer: object, now: float, *, is_idle: bool) -> tuple[bool, float]:
        """Say whether to go now, and else the seconds until the client should look again.

        A permission does not count once another letter has come: then a later life of the directory gave that letter.
        A client that is permitted to go and is busy with something of its own goes when that is done: nobody sends it
        anything more.
        """
        match answer:
            case MayLeave() if self.mark == self._asked_under:
                self._must = True
                return is_idle, _ASK_AGAIN_S
            case StayHere(mark=mark):
                self.mark = mark
                return False, max(_ASK_AGAIN_S, self.wait_s(now, is_idle=is_idle))
        return False, max(1.0, self.wait_s(now, is_idle=is_idle))


__all__ = ["Leaving"]

"""The turn machine's whole table: in which phase which input counts, and where it may lead (FEATURES C1).

Data only. ``actors/turn.py`` obeys it: an input without a row in the present phase (late, doubled, out of place) is
ignored, and a phase that the row does not name cannot follow. ``actors/turn_diagram.py`` draws the documentation's
diagram from it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TypeAlias

from callboard.actors.turn_inputs import (
    Begin,
    CallFinished,
    Cancel,
    DeadlinePassed,
    Decided,
    Durable,
    Input,
    Interrupt,
    ModelFailed,
    ModelReplied,
    Resume,
    RetryDue,
    StepTimedOut,
    StorageFailed,
)


class Phase(enum.Enum):
    """Where a turn stands. ``shown`` is what a person sees (two phases may look alike), ``meaning`` one line on it."""

    def __init__(self, shown: str, meaning: str) -> None:
        self.shown = shown
        self.meaning = meaning

    NEW = ("waiting_acceptance", "nothing has happened yet")
    ACCEPTING = ("waiting_acceptance", "the acceptance, or the resumption, is being written")
    ASKING = ("asking", "the model is asked for a reply")
    RETRYING = ("retrying", "the model failed, and is asked again after a delay")
    CALLING = ("calling", "calls are being written down, or run")
    SUSPENDED = ("suspended", "a person's decision is all that is missing; the clock stands still")
    ENDING = ("ending", "the ending is being written")
    ENDED = ("ended", "the ending is durable and announced")
    LEAVING = ("leaving", "the process ends on purpose; that is being written")
    LEFT = ("left", "the turn is for the next process to take up")


Transitions: TypeAlias = Mapping[tuple[Phase, type[Input]], frozenset[Phase]]

OPEN_PHASES = (Phase.ACCEPTING, Phase.ASKING, Phase.RETRYING, Phase.CALLING, Phase.SUSPENDED)
"""The turn has begun and has no ending: it can be cut off, or left."""

_NEXT_STEP = (Phase.ASKING, Phase.ENDING)  # the model is asked, or the step limit ends the turn
_CLOCK_RUNS = tuple(phase for phase in OPEN_PHASES if phase is not Phase.SUSPENDED)

_Rows: TypeAlias = dict[tuple[Phase, type[Input]], tuple[Phase, ...]]

_ROWS: _Rows = {
    (Phase.NEW, Begin): (Phase.ACCEPTING,),
    (Phase.NEW, Resume): (Phase.ACCEPTING, Phase.SUSPENDED, Phase.ENDING),
    (Phase.ACCEPTING, Durable): (Phase.ACCEPTING, Phase.CALLING, Phase.SUSPENDED, *_NEXT_STEP),
    (Phase.ACCEPTING, Decided): (Phase.ACCEPTING,),
    (Phase.ASKING, ModelReplied): (Phase.ASKING, Phase.CALLING, Phase.SUSPENDED, Phase.ENDING),
    (Phase.ASKING, ModelFailed): (Phase.RETRYING, Phase.ENDING),
    (Phase.ASKING, StepTimedOut): (Phase.ASKING, Phase.RETRYING, Phase.ENDING),
    (Phase.RETRYING, RetryDue): (Phase.ASKING,),
    (Phase.CALLING, Durable): (Phase.CALLING,),
    (Phase.CALLING, CallFinished): (Phase.CALLING, Phase.SUSPENDED, *_NEXT_STEP),
    (Phase.CALLING, Decided): (Phase.CALLING,),
    (Phase.CALLING, StepTimedOut): (Phase.CALLING, Phase.SUSPENDED, *_NEXT_STEP),
    (Phase.SUSPENDED, Durable): (Phase.SUSPENDED,),
    (Phase.SUSPENDED, Decided): (Phase.SUSPENDED, Phase.CALLING, *_NEXT_STEP),
    (Phase.SUSPENDED, Interrupt): (Phase.LEAVING, Phase.LEFT),
    (Phase.ENDING, Durable): (Phase.ENDING, Phase.ENDED),
    (Phase.ENDING, Interrupt): (Phase.ENDING,),
    (Phase.LEAVING, Durable): (Phase.LEAVING, Phase.LEFT),
}
_CUT_OFF: _Rows = {
    **{(phase, Cancel): (Phase.ENDING,) for phase in OPEN_PHASES},
    **{(phase, StorageFailed): (Phase.ENDING,) for phase in OPEN_PHASES},
    **{(phase, DeadlinePassed): (Phase.ENDING,) for phase in _CLOCK_RUNS},
    **{(phase, Interrupt): (Phase.LEAVING,) for phase in _CLOCK_RUNS},
}

TRANSITIONS: Transitions = {key: frozenset(to) for key, to in (_ROWS | _CUT_OFF).items()}

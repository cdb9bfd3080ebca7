"""What the turn machine says: to the model in place of a result, and between its steps. Texts only."""

from __future__ import annotations

from collections.abc import Sequence

from callboard.actors.events import ApprovalDecided
from callboard.tools.content import ToolResult, error_result

REPEAT_STEPS = 3

OUTCOME_UNKNOWN = "outcome unknown: the process was lost while this call ran; it was not repeated"
NOT_RUN = "not run: the turn ended before this call started"
CAP_NOTE = (
    "The step limit of this turn is reached and the tools are closed. "
    "Answer now, in words, with what the results above give you; say what is missing."
)
CAPPED_ANSWER = "The step limit was reached before an answer was found; the tool results so far are kept."
EMPTY_NOTE = "Your last reply was empty. Answer the user, or call a tool."


def repeat_note(tools: Sequence[str]) -> str:
    """Tell the model that it goes in circles."""
    return (
        f"You called {', '.join(tools)} with the same arguments {REPEAT_STEPS} times in a row. "
        "The result will not change: use it, try something else, or answer."
    )


def denied(decided: ApprovalDecided) -> ToolResult:
    """Give the result of a call that a person did not want, or on which nobody decided in time."""
    if decided.expired:
        return error_result(f"not run: this call needed a person's approval and {decided.reason}", "denied")
    who = decided.by or "the user"
    why = f": {decided.reason.strip()}" if decided.reason.strip() else ""
    return error_result(f"not run: {who} denied this call{why}", "denied")


def past_step_deadline(step_deadline_s: float, *, ran: bool) -> ToolResult:
    """Give the result of a call that the step's deadline overtook."""
    limit = f"this step's deadline of {step_deadline_s:g} s"
    text = (
        f"not finished within {limit}; it was killed" if ran else f"not run: {limit} passed before it started"
    )
    return error_result(text, "deadline")

"""What becomes of a turn that is taken up again (DESIGN, decision 5). Pure; asked by the turn machine alone."""

from __future__ import annotations

from callboard.actors.events import StepFinished
from callboard.actors.items import FunctionCall
from callboard.actors.turn_inputs import Resume, Verdicts
from callboard.actors.turn_words import OUTCOME_UNKNOWN
from callboard.tools.content import error_result


def calls_left(given: Resume) -> tuple[FunctionCall, ...]:
    """Give the calls without a result: those that were started, then those that were not."""
    return (*given.unfinished.open_calls, *given.unfinished.pending_calls)


def lost_calls(given: Resume) -> frozenset[str]:
    """Give the ids of the calls that may have had their effect; in a damaged log, of every call that is left."""
    calls = calls_left(given) if given.damaged else given.unfinished.open_calls
    return frozenset(call.call_id for call in calls)


def stays_suspended(given: Resume) -> bool:
    """True when the turn waits for a person as it did before, and for nothing else."""
    unfinished = given.unfinished
    if not unfinished.suspended or given.damaged:
        return False
    return bool(unfinished.waiting) and unfinished.waiting.issuperset(c.call_id for c in calls_left(given))


def why_not(given: Resume, max_resumes: int, *, is_over: bool) -> tuple[str, str] | None:
    """Give the reason, and a sentence on it, for which the turn must fail instead of going on."""
    losses = given.unfinished.losses
    if given.damaged:
        return (
            "log_damaged",
            "a part of the conversation's log was lost, so what the turn had done is not known",
        )
    if losses > max_resumes:
        return "poison", f"the turn lost its process {losses} times; it is not tried again"
    return ("deadline", "the turn's deadline passed while no process had it") if is_over else None


def final_text(given: Resume) -> str | None:
    """Give the answer that is in the log without its ending; the model is not asked for it again."""
    steps = [event for event in given.unfinished.events if isinstance(event, StepFinished)]
    if not steps or steps[-1].calls or calls_left(given):
        return None
    return steps[-1].text if steps[-1].text.strip() else None


def verdicts_of(given: Resume) -> Verdicts:
    """Give the verdicts on the calls left: what was started runs again only where that is harmless."""
    unknown = {
        call.call_id: error_result(OUTCOME_UNKNOWN, "unknown")
        for call in given.unfinished.open_calls
        if call.call_id not in given.repeatable or call.call_id in given.refusals
    }
    return Verdicts(
        refusals={**given.refusals, **unknown},
        approvals=given.approvals,
        decisions=given.decisions,
        tool_versions=given.tool_versions,
    )

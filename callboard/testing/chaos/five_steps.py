"""The workload of kills by position: a turn of five steps and three tools, so that records of many kinds occur.

Step 1 calls a tool that must not run twice, step 2 one that only reads, step 3 one of each at once, step 4 says
something beside a call that may run twice, step 5 answers. ``rule`` is the scripted model that plays it.
"""

from __future__ import annotations

import json

from callboard.testing.model_script import Call, RecordedRequest, Reply

TOOLS = "callboard.testing.chaos.tools"
ONCE_TOOLS = frozenset({"leave_mark"})
RECORDS = 18
ANSWER = "That is all."
_TITLE = "five steps "


def question(effects: str, seconds: float) -> str:
    """Give the user's text: the file in which effects are counted, and how long each call takes."""
    return _TITLE + json.dumps({"path": effects, "seconds": seconds})


def rule(request: RecordedRequest) -> Reply:
    """Give the next step's reply, by how many the model has made since the user spoke. Pure."""
    given = json.loads(request.last_user_text.removeprefix(_TITLE))
    mark = json.dumps(given)
    nap = json.dumps({"seconds": given["seconds"]})
    long_nap = json.dumps({"seconds": given["seconds"] * 2})
    match _steps_so_far(request):
        case 0:
            return Reply(calls=(Call(name="leave_mark", arguments=mark),))
        case 1:
            return Reply(calls=(Call(name="nap", arguments=nap),))
        case 2:
            both = (Call(name="leave_mark", arguments=mark), Call(name="nap", arguments=long_nap))
            return Reply(calls=both)
        case 3:
            return Reply(text="Nearly there.", calls=(Call(name="leave_mark_again", arguments=mark),))
    return Reply(text=ANSWER)


def _steps_so_far(request: RecordedRequest) -> int:
    steps = 0
    for message in request.messages:
        if message.get("role") == "user":
            steps = 0
        steps += message.get("role") == "assistant"
    return steps

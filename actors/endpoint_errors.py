"""What an endpoint's failure means: an error object or an HTTP status becomes a ModelError.

One contract for all the ways in which endpoints report: a status, an error in the body of a 200, an error in the
middle of a stream. Pure; knows neither openai nor the network. Called by ``actors/openai_model.py`` and
``actors/stream_assembly.py``.
"""

from __future__ import annotations

import email.utils
import json
import math
import re
from collections.abc import Mapping
from typing import Any

from callboard.actors.chat_model import ModelError

_OVERLOADED_STATUS = (503, 529)
_MESSAGE_CHARS = 500
_REJECTION = re.compile(r"invalid_request|authentication|permission|not_found|\b4\d\d\b")
_TOO_LONG_CODE = re.compile(r"context_length_exceeded|exceed_context_size|string_above_max_length")
_TOO_LONG = re.compile(
    r"maximum context length|exceeds? the (available |model's )?context|context (length|window|size) exceeded"
    r"|prompt is too long|reduce the length of the (messages|prompt)|input is too long",
    re.IGNORECASE,
)
_WINDOW = re.compile(
    r"(?:maximum context length (?:is|of)|context (?:size|length|window)(?: of| is)?:? ?\(?|> )\s*(\d{3,9})",
    re.IGNORECASE,
)
_TRY_AGAIN = re.compile(r"try again in (\d+(?:\.\d+)?) ?(ms|s)\b", re.IGNORECASE)


def error_of_object(error: Any) -> ModelError:
    """Read an endpoint's error (an object with ``message``, ``code``, ``type``; or text) as a ModelError."""
    if not isinstance(error, Mapping):
        text = f"the endpoint reported an error: {_bounded(str(error))}"
        return ModelError("server_error", text, retryable=True)
    message = _bounded(text_of(error.get("message")) or json.dumps(dict(error), default=str))
    marks = f"{error.get('code')} {error.get('type')}".lower()
    text = f"the endpoint reported an error: {message}"
    wish = _spoken_wish(message)
    if _is_too_long(marks, message):
        return _too_long(text, error)
    if "quota" in marks:
        return ModelError("rate_limited", text, retryable=False)
    if "429" in marks or "rate_limit" in marks:
        return ModelError("rate_limited", text, retryable=True, retry_after_s=wish)
    if "overloaded" in marks or "503" in marks or "unavailable" in marks:
        return ModelError("overloaded", text, retryable=True, retry_after_s=wish)
    if _REJECTION.search(marks):
        return ModelError("rejected", text, retryable=False)
    return ModelError("server_error", text, retryable=True, retry_after_s=wish)


def error_of_status(
    status: int, body: Any, message: str, headers: Mapping[str, str], wall_now_s: float
) -> ModelError:
    """Read an HTTP status other than 2xx, with its body (an error object or anything), as a ModelError.

    ``message`` is used where the body has none; ``wall_now_s`` is Unix time, for ``Retry-After`` as a date.
    """
    error = body if isinstance(body, Mapping) else {}
    said = text_of(error.get("message")) or message
    marks = f"{error.get('code')} {error.get('type')}".lower()
    text = _bounded(f"HTTP {status}: {said}")
    wish = retry_after_s(headers, wall_now_s)
    if status in (400, 413, 422) and _is_too_long(marks, said):
        return _too_long(text, error)
    if status == 429:
        wish = _spoken_wish(said) if wish is None else wish
        return ModelError("rate_limited", text, retryable="quota" not in marks, retry_after_s=wish)
    if status in _OVERLOADED_STATUS:
        return ModelError("overloaded", text, retryable=True, retry_after_s=wish)
    if status == 408:
        return ModelError("timeout", text, retryable=True, retry_after_s=wish)
    if status < 500:
        return ModelError("rejected", text, retryable=False)
    return ModelError("server_error", text, retryable=True, retry_after_s=wish)


def retry_after_s(headers: Mapping[str, str], wall_now_s: float) -> float | None:
    """Read the endpoint's wish to be left alone, in seconds from now, never negative; None when it has none.

    Understands ``retry-after-ms``, and ``retry-after`` in seconds or as an HTTP date; ``wall_now_s`` is
    Unix time.
    """
    for name, scale in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            wish = float(headers[name]) / scale
        except (KeyError, ValueError):
            continue
        return max(0.0, wish) if math.isfinite(wish) else None
    try:
        until = email.utils.parsedate_to_datetime(headers["retry-after"])
    except (KeyError, ValueError):
        return None
    return max(0.0, until.timestamp() - wall_now_s)


def text_of(value: Any) -> str:
    """Read a string; or the text parts of a list, as some endpoints send their content; else ""."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        parts = [part.get("text") for part in value if isinstance(part, Mapping)]
        return "".join(part for part in parts if isinstance(part, str))
    return ""


def _is_too_long(marks: str, message: str) -> bool:
    return _TOO_LONG_CODE.search(marks) is not None or _TOO_LONG.search(message) is not None


def _too_long(text: str, error: Mapping[str, Any]) -> ModelError:
    """The request is longer than the model's window; endpoints mostly say how long that is."""
    stated = error.get("n_ctx")
    found = _WINDOW.search(text)
    size = stated if isinstance(stated, int) else int(found[1]) if found else None
    return ModelError("context_window", text, retryable=False, context_tokens=size)


def _spoken_wish(message: str) -> float | None:
    found = _TRY_AGAIN.search(message)
    if found is None:
        return None
    return float(found[1]) / (1000.0 if found[2].lower() == "ms" else 1.0)


def _bounded(text: str, limit: int = _MESSAGE_CHARS) -> str:
    return text if len(text) <= limit else text[:limit] + " …"

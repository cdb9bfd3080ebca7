"""``current_time``: the date and time now, in any zone of the IANA database. Runs in a call's process."""

from __future__ import annotations

import difflib
import zoneinfo
from datetime import datetime
from typing import Annotated

from pydantic import Field

from callboard.tools.decorator import tool
from callboard.tools.errors import ToolFault

_SUGGESTIONS = 5


@tool(read_only=True, idempotent=True, deadline_s=10.0)
def current_time(zone: Annotated[str, Field(max_length=100)] = "UTC") -> dict[str, str]:
    """Tell the current date and time.

    Args:
        zone: An IANA time zone such as Europe/Berlin or America/New_York.
    """
    known = zoneinfo.available_timezones()
    if not known:
        raise ToolFault("this system has no time zone database: install the package tzdata")
    name = zone if zone in known else _same_but_for_case(zone, known)
    if name is None:
        raise ToolFault(_unknown(zone, known))
    now = datetime.now(zoneinfo.ZoneInfo(name))
    return {
        "zone": name,
        "time": now.isoformat(timespec="seconds"),
        "weekday": now.strftime("%A"),
        "utc_offset": now.strftime("%z"),
        "abbreviation": now.tzname() or "",
    }


def _same_but_for_case(zone: str, known: set[str]) -> str | None:
    wanted = zone.strip().replace(" ", "_").casefold()
    return next((name for name in sorted(known) if name.casefold() == wanted), None)


def _unknown(zone: str, known: set[str]) -> str:
    wanted = zone.strip().replace(" ", "_").casefold()
    by_name = {name.casefold(): name for name in sorted(known)}
    by_city = {name.rpartition("/")[2].casefold(): name for name in sorted(known)}
    inside = [name for folded, name in by_name.items() if wanted and wanted in folded]
    close = [by_name[match] for match in difflib.get_close_matches(wanted, by_name, _SUGGESTIONS)]
    city = [by_city[match] for match in difflib.get_close_matches(wanted, by_city, _SUGGESTIONS)]
    near = list(dict.fromkeys([*inside, *city, *close]))[:_SUGGESTIONS]
    advice = f"near matches: {', '.join(near)}" if near else "give an IANA name such as Europe/Berlin, or UTC"
    return f"there is no time zone {zone!r}; {advice}"

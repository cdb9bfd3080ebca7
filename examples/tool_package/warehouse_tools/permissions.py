"""The permission hook: code of the warehouse's own that is asked before each call which the rules permit.

It runs in a process of its own for each call, and is killed after ``hook_deadline_s``. True allows; False, or a reason
in words, denies; so does anything that goes wrong.
"""

from callboard.tools.permission_hook import PermissionRequest

SCRAP_AT_MOST = {"clerk": 5, "foreman": 500}


def check(request: PermissionRequest) -> bool | str:
    """Let a person scrap as many pieces as their role may."""
    if request.tool != "scrap_article":
        return True
    allowed = max((SCRAP_AT_MOST.get(role, 0) for role in request.roles), default=0)
    wanted = request.arguments["pieces"]
    return wanted <= allowed or f"{wanted} pieces are too many for you: at most {allowed}"

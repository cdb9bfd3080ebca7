"""A filter on system calls by which a process gives up making sockets, for itself and all that it starts.

It closes what Landlock leaves open: UDP, Unix sockets by path (the mail's folder), and rings that make sockets. A
pair of connected sockets (``socketpair``) is still to be had: asyncio needs one, and it leads nowhere. The filter is
the kernel's classic BPF, written out here; see seccomp(2).
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct

_PR_SET_SECCOMP = 22
_MODE_FILTER = 2
_ALLOW = 0x7FFF0000
_DENY = 0x00050000  # plus the errno
_KILL = 0x80000000
_EACCES = 13
_ENOSYS = 38
_NUMBER_AT, _ARCHITECTURE_AT = 0, 4
_LOAD, _IF_EQUAL, _IF_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_RING_SETUP = 425
_X32_BIT = 0x40000000

# machine: (the kernel's name for it in a filter, the number of socket(2))
_MACHINES = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def is_known() -> bool:
    """True when the numbers of this machine's system calls are known here."""
    return platform.machine() in _MACHINES and ctypes.sizeof(ctypes.c_void_p) == 8


def refuse_sockets() -> None:
    """Make ``socket`` fail with EACCES from now on; the process must have no_new_privs set. Raises OSError."""
    architecture, socket_number = _MACHINES[platform.machine()]
    code = b"".join(
        struct.pack("=HBBI", operation, jump, otherwise, value)
        for operation, jump, otherwise, value in (
            (_LOAD, 0, 0, _ARCHITECTURE_AT),
            (_IF_EQUAL, 1, 0, architecture),
            (_RETURN, 0, 0, _KILL),
            (_LOAD, 0, 0, _NUMBER_AT),
            (_IF_AT_LEAST, 3, 0, _X32_BIT),
            (_IF_EQUAL, 3, 0, socket_number),
            (_IF_EQUAL, 1, 0, _RING_SETUP),
            (_RETURN, 0, 0, _ALLOW),
            (_RETURN, 0, 0, _DENY | _ENOSYS),
            (_RETURN, 0, 0, _DENY | _EACCES),
        )
    )
    program = _Program(len(code) // 8, code)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program), 0, 0) != 0:
        errno = ctypes.get_errno()
        raise OSError(errno, f"seccomp: {os.strerror(errno)}")

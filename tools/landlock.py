"""Landlock: the kernel's way to let a process give up its reach into the file system, without any privilege.

Thin wrappers over three system calls that have no C function; they decide nothing. The numbers are those of every
architecture that Linux has added them to (they are shared since 5.1). See landlock(7).
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Iterable

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_VERSION_FLAG = 1
_RULE_PATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_FIRST_RIGHTS = (1 << 13) - 1
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_NET_TCP = (1 << 0) | (1 << 1)
_SCOPES = (1 << 0) | (1 << 1)
_READING = _EXECUTE | _READ_FILE | _READ_DIR
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV


def abi_version() -> int:
    """Give the version of Landlock that the kernel offers, 0 for none."""
    version: int = _libc().syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_FLAG))
    return max(version, 0)


def restrict(readable: Iterable[str], writable: Iterable[str]) -> None:
    """Let this process, and all that it starts, reach these paths and nothing else, for ever.

    Reading includes executing; what is below a path counts with it; a path that is not there is passed over. TCP is
    refused from version 4 on, signals and abstract sockets to processes outside from version 6 on. The process must
    have no_new_privs set. Raises OSError where the kernel refuses.
    """
    version = abi_version()
    handled = _handled(version)
    form = struct.pack("=QQQ", handled, _NET_TCP if version >= 4 else 0, _SCOPES if version >= 6 else 0)
    form = form[: 8 if version < 4 else 16 if version < 6 else 24]
    rules_fd = _call(_CREATE, form, ctypes.c_size_t(len(form)), ctypes.c_uint32(0))
    try:
        for path in readable:
            _allow(rules_fd, path, handled & _READING)
        for path in writable:
            _allow(rules_fd, path, handled)
        _call(_RESTRICT, ctypes.c_int(rules_fd), ctypes.c_uint32(0))
    finally:
        os.close(rules_fd)


def _handled(version: int) -> int:
    rights = _FIRST_RIGHTS
    for since, right in ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEV)):
        rights |= right if version >= since else 0
    return rights


def _allow(rules_fd: int, path: str, rights: int) -> None:
    try:
        path_fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    try:
        if not stat.S_ISDIR(os.fstat(path_fd).st_mode):
            rights &= _ON_FILES
        form = struct.pack("=Qi", rights, path_fd)
        _call(_ADD, ctypes.c_int(rules_fd), ctypes.c_int(_RULE_PATH), form, ctypes.c_uint32(0))
    finally:
        os.close(path_fd)


def _call(number: int, *arguments: object) -> int:
    result: int = _libc().syscall(number, *arguments)
    if result < 0:
        errno = ctypes.get_errno()
        raise OSError(errno, f"Landlock: {os.strerror(errno)}")
    return result


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)

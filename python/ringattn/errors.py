"""A class for each status of the library; the text of an exception is the library's own sentence."""
from __future__ import annotations

from . import _library


class Error(RuntimeError):
    """What every error of ringattn is. `status` is the number of the library's ra_status."""

    status = -1


class ArgumentError(Error, ValueError):
    """An argument is wrong; nothing was sent and nothing is lost."""

    status = 1


class UnsupportedError(Error, NotImplementedError):
    """A combination that the library does not compute."""

    status = 2


class OutOfMemoryError(Error, MemoryError):
    """No memory for a plan."""

    status = 3


class MismatchError(Error):
    """The ranks disagree about the problem; the text names a rank and a field."""

    status = 4


class PeerTimeoutError(Error, TimeoutError):
    """A peer did not answer before the deadline; the comm is lost."""

    status = 5


class PeerError(Error):
    """A peer failed; the comm is lost."""

    status = 6


class TransportError(Error):
    """The transport failed; the comm is lost."""

    status = 7


class BrokenError(Error):
    """The comm was lost earlier and refuses further use."""

    status = 8


class InternalError(Error):
    """A fault inside ringattn."""

    status = 9


class DeviceError(Error):
    """The device refused or failed."""

    status = 10


BY_STATUS = {
    kind.status: kind
    for kind in (
        ArgumentError,
        UnsupportedError,
        OutOfMemoryError,
        MismatchError,
        PeerTimeoutError,
        PeerError,
        TransportError,
        BrokenError,
        InternalError,
        DeviceError,
    )
}


def check(status: int) -> None:
    """Raises what the status of the call that this thread has just made stands for."""
    if status == 0:
        return
    library = _library.core()
    text = library.ra_last_error().decode(errors="replace") or library.ra_status_text(status).decode()
    raise BY_STATUS.get(status, Error)(text)

"""The ranks: Comm, and run_ranks for ranks that are threads of this process."""
from __future__ import annotations

import ctypes
import os
import threading
from typing import Any, Callable, List, NoReturn, Optional, Sequence, Set
import weakref

from . import _capi, _library
from .errors import (ArgumentError, BrokenError, Error, MismatchError, PeerError, PeerTimeoutError, UnsupportedError,
                     check)


_LEFT_BEHIND = ("this comm was made before a fork and is the parent process's; a child makes comms of its own, as "
                "ringattn.attention does")
_of_several: "weakref.WeakSet[Comm]" = weakref.WeakSet()  # comms of several ranks, which do not survive a fork


def _leave_behind() -> None:
    for comm in list(_of_several):
        comm.leave_behind()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_behind)


class Comm:
    """The ranks of a job as one of them sees it. Used by one thread at a time; closed by close(), `with` or collection.

    Made by one of: Comm.single(), Comm.threads(n), Comm.ucx(...), Comm.mpi(...), Comm.nccl(...).
    """

    def __init__(self, handle: int, keep: Any = None) -> None:
        library = _library.core()
        self._handle: Optional[int] = handle
        self._destroy = library.ra_comm_destroy
        self._keep = keep  # what must outlive the comm: the host comm of an NCCL one
        self._destroy_plan = library.ra_plan_destroy
        self._plans: Set[int] = set()  # handles, not objects: the collector may end a comm before its plans
        self.rank: int = library.ra_comm_rank(handle)
        self.ranks: int = library.ra_comm_ranks(handle)
        self.transport: str = library.ra_comm_transport(handle).decode()
        self._left_behind = False  # by a fork, in a child: the parent's, which must not be touched
        if self.ranks > 1:
            _of_several.add(self)

    @staticmethod
    def single() -> "Comm":
        """One rank, alone."""
        out = ctypes.c_void_p()
        check(_library.core().ra_comm_create_self(ctypes.byref(out)))
        return Comm(out.value)

    @staticmethod
    def threads(ranks: int) -> List["Comm"]:
        """Ranks of this process, which must run at the same time, each on a thread of its own: see run_ranks."""
        out = (ctypes.c_void_p * max(int(ranks), 1))()
        check(_library.core().ra_comm_create_threads(int(ranks), out))
        return [Comm(handle) for handle in out]

    @staticmethod
    def ucx(rank: int, ranks: int, allgather: Callable[[bytes], Sequence[bytes]], timeout: float = 60,
            transports: Optional[str] = None, devices: Optional[str] = None) -> "Comm":
        """Ranks over UCX: processes, on one machine or many. Collective.

        allgather(mine) gives every rank's bytes in rank order; it is called a few times, and only during this call.
        transports, devices: written as UCX_TLS and UCX_NET_DEVICES.
        """
        library = _library.core()
        _library.load_ucx()
        failure: List[BaseException] = []

        def gather(_user: Any, mine: int, size: int, all_out: int) -> int:
            try:
                blocks = allgather(ctypes.string_at(mine, size))
                if len(blocks) != ranks or any(len(block) != size for block in blocks):
                    raise ArgumentError(f"allgather must give {ranks} blocks of {size} bytes")
                ctypes.memmove(all_out, b"".join(blocks), size * ranks)
                return 0
            except BaseException as error:  # it must not go through C
                failure.append(error)
                return library.ra_fail(_capi.STATUSES["RA_ERR_TRANSPORT"], b"%s", f"allgather: {error}".encode())

        how = _capi.UcxOptions(struct_size=ctypes.sizeof(_capi.UcxOptions), create_seconds=timeout)
        how.transports = transports.encode() if transports else None
        how.devices = devices.encode() if devices else None
        out = ctypes.c_void_p()
        status = library.ra_comm_create_ucx(rank, ranks, _capi.AllGather(gather), None, ctypes.byref(how),
                                            ctypes.byref(out))
        if failure and status != 0:
            raise failure[0]
        check(status)
        return Comm(out.value)

    @staticmethod
    def mpi(communicator: Any) -> "Comm":
        """Ranks over MPI, from an mpi4py communicator. Needs libringattn_mpi, built against the MPI that mpi4py
        uses."""
        library = _library.mpi()
        if library is None:
            raise UnsupportedError("ranks over MPI: libringattn_mpi is not there; build it where an MPI is installed")
        from mpi4py import MPI

        # An MPI_Comm is a pointer in Open MPI and an int in MPICH; mpi4py knows its size.
        kind = ctypes.c_void_p if MPI._sizeof(MPI.Comm) == ctypes.sizeof(ctypes.c_void_p) else ctypes.c_int
        create = library.ra_comm_create_mpi
        create.restype, create.argtypes = ctypes.c_int, [kind, ctypes.POINTER(ctypes.c_void_p)]
        out = ctypes.c_void_p()
        check(create(kind.from_address(MPI._addressof(communicator)), ctypes.byref(out)))
        return Comm(out.value)

    @staticmethod
    def nccl(host: "Comm", device: int, timeout: float = 60) -> "Comm":
        """Ranks over NCCL, with a device each; `host` carries what is in host memory, and is kept."""
        library = _library.cuda()
        if library is None or not library.ra_cuda_has_nccl():
            raise UnsupportedError("ranks over NCCL: libringattn_cuda is not there, or there is no libnccl.so.2")
        out = ctypes.c_void_p()
        check(library.ra_comm_create_nccl(host.handle, device, timeout, ctypes.byref(out)))
        return Comm(out.value, keep=host)

    @property
    def handle(self) -> int:
        """The ra_comm *."""
        if self._handle is None:
            raise BrokenError(_LEFT_BEHIND if self._left_behind else "this comm was closed")
        return self._handle

    def allgather(self, mine: bytes, timeout: float = 60) -> List[bytes]:
        """Collective: everyone's bytes in rank order; all ranks give the same number of them, at least one."""
        mine = bytes(mine)
        out = ctypes.create_string_buffer(len(mine) * self.ranks)
        check(_library.core().ra_comm_allgather(self.handle, mine, len(mine), out, timeout))
        return [out.raw[r * len(mine):(r + 1) * len(mine)] for r in range(self.ranks)]

    @property
    def lost(self) -> bool:
        """Whether the comm refuses further use, or will at its next one because a peer has given up."""
        return bool(_library.core().ra_comm_lost(self.handle))

    def progress(self) -> None:
        """Tells peers that wait for this rank that it is alive; takes microseconds. For work outside of ringattn that
        is longer than the timeout."""
        _library.core().ra_comm_progress(self.handle)

    def adopt(self, plan: int) -> None:
        """Takes charge of an ra_plan *, which ends with the comm at the latest."""
        self._plans.add(plan)

    def owns(self, plan: int) -> bool:
        return plan in self._plans

    def release(self, plan: int) -> None:
        """Ends a plan, if it has not ended yet."""
        if plan in self._plans:
            self._plans.discard(plan)
            self._destroy_plan(plan)

    def close(self) -> None:
        """Ends the plans as well. Peers that still work with theirs get an error, not a hang. A comm of several
        processes is closed by all."""
        handle, self._handle = self._handle, None
        if handle is not None:
            while self._plans:
                self._destroy_plan(self._plans.pop())
            self._destroy(handle)

    def __enter__(self) -> "Comm":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Comm is a process's connection to others, which cannot be copied or pickled; make one where "
                        "it is needed")

    def leave_behind(self) -> None:
        """In a child of fork(): the comm and its plans are the parent's, and are neither used nor ended here."""
        self._handle, self._left_behind = None, True
        self._plans.clear()

    def __repr__(self) -> str:
        return f"<ringattn.Comm rank {self.rank} of {self.ranks}, {self.transport}>"


def _weight(error: BaseException) -> int:
    """Lower for what tells more: a rank that failed by itself before those that failed because of it."""
    if isinstance(error, (PeerError, BrokenError)):
        return 2
    return 1 if isinstance(error, (MismatchError, PeerTimeoutError)) else 0


def run_ranks(ranks: int, body: Callable[[Comm], Any]) -> List[Any]:
    """Calls body(comm) for each of `ranks` ranks on a thread of its own; their results in rank order.

    When ranks fail, the exception of the one that failed by itself is raised. A comm is closed when its body is done.
    """
    comms = Comm.threads(ranks)
    results: List[Any] = [None] * ranks
    errors: List[Optional[BaseException]] = [None] * ranks

    def run(comm: Comm) -> None:
        try:
            results[comm.rank] = body(comm)
        except BaseException as error:
            errors[comm.rank] = error
        finally:
            comm.close()

    threads = [threading.Thread(target=run, args=(comm,), name=f"ringattn-rank-{comm.rank}") for comm in comms[1:]]
    for thread in threads:
        thread.start()
    run(comms[0])
    for thread in threads:
        thread.join()
    failed = [error for error in errors if error is not None]
    if failed:
        raise min(failed, key=_weight)
    return results


__all__ = ["Comm", "run_ranks", "Error"]

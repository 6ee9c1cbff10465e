"""Plans: a problem on a comm, ready to run; and what a plan would be, without running anything."""
from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Dict, List, NoReturn, Optional, Sequence, Tuple

from . import _arrays, _capi, _library
from .comm import Comm
from .errors import ArgumentError, BrokenError, UnsupportedError, check
from .problem import Problem, choice, name_of


@dataclass(frozen=True)
class Traffic:
    """What one run of a pass sends, and what the last one did send."""

    bytes_planned: int
    messages_planned: int
    bytes_sent: int
    messages_sent: int


@dataclass(frozen=True)
class PlanInfo:
    """What a plan is, on one rank: the fields of ra_plan_info, choices by name."""

    rank: int
    ranks: int
    rows_q: int
    rows_k: int
    pairs: int
    workspace_bytes: int
    kv_slot_bytes: int
    state_bytes: int
    grad_slot_bytes: int
    scratch_bytes: int
    kv_slots: int
    grad_slots: int
    steps_forward: int
    steps_backward: int
    layout: str
    strategy: str
    kernel: str
    device: str
    forward: Traffic
    backward: Traffic
    plan_bytes: int


@dataclass(frozen=True)
class StepInfo:
    """One step of a schedule: the fields of ra_step_info."""

    owner: int
    visitor: int
    pairs: int
    send_peer: int
    recv_peer: int
    sends: int
    recvs: int
    bytes_sent: int
    bytes_received: int


def _fields(structure: ctypes.Structure, skip: Tuple[str, ...] = ("struct_size",)) -> Dict[str, Any]:
    return {name: getattr(structure, name) for name, _ in structure._fields_ if name not in skip}


def _info_of(info: _capi.PlanInfo) -> PlanInfo:
    fields = _fields(info)
    fields["layout"] = name_of(info.layout, _capi.LAYOUTS)
    fields["strategy"] = name_of(info.strategy, _capi.STRATEGIES)
    fields["kernel"], fields["device"] = info.kernel.decode(), info.device.decode()
    fields["forward"], fields["backward"] = Traffic(**_fields(info.forward)), Traffic(**_fields(info.backward))
    return PlanInfo(**fields)


def _new_info() -> _capi.PlanInfo:
    info = _capi.PlanInfo()
    _library.core().ra_plan_info_init(ctypes.byref(info))
    return info


def backend_of(device: Optional[Any]) -> Optional[int]:
    """The ra_backend of "cpu", "cuda", "cuda:1" or ("cuda", 1); None for the CPU."""
    if device is None:
        return None
    kind, ordinal = _device_of(device)
    if kind == "cpu":
        return None
    if kind != "cuda":
        raise ArgumentError(f"device is {device!r}; it must be cpu, cuda or cuda:N")
    library = _library.cuda()
    if library is None:
        raise UnsupportedError("arrays are on a GPU, but libringattn_cuda is not there: "
                               "install the package where a CUDA toolkit is, or bring them to the CPU")
    out = ctypes.c_void_p()
    check(library.ra_cuda_backend(ordinal, ctypes.byref(out)))
    return out.value


def _device_of(device: Optional[Any]) -> Tuple[str, int]:
    """("cpu", 0), ("cuda", ordinal), as Views have it."""
    if isinstance(device, tuple):
        return device
    kind, _, ordinal = str(device or "cpu").partition(":")
    return kind, int(ordinal or 0)


def make_options(layout: str = "auto", strategy: str = "auto", backward: bool = False, kernel: Optional[str] = None,
                 threads: int = 0, timeout: float = 0, device: Optional[Any] = None) -> _capi.Options:
    """ra_options; zero and None take the library's defaults."""
    options = _capi.Options()
    _library.core().ra_options_init(ctypes.byref(options))
    options.layout = choice("layout", layout, _capi.LAYOUTS)
    options.strategy = choice("strategy", strategy, _capi.STRATEGIES)
    options.backward = bool(backward)
    options.kernel = kernel.encode() if kernel else None
    options.threads = int(threads)
    options.timeout_seconds = float(timeout or 0)
    options.backend = backend_of(device)
    return options


def predict(problem: Problem, ranks: int, rank: int = 0, **options: Any) -> PlanInfo:
    """What the plan of one rank of any number would be; options as Plan's. Nothing runs and no comm is needed."""
    info = _new_info()
    check(_library.core().ra_predict(problem.to_c(), make_options(**options), ranks, rank, ctypes.byref(info)))
    return _info_of(info)


def predict_steps(problem: Problem, ranks: int, rank: int = 0, direction: str = "forward",
                  **options: Any) -> List[StepInfo]:
    """The steps of a rank's schedule in the direction "forward" or "backward" (which needs backward=True)."""
    arguments = (problem.to_c(), make_options(**options), ranks, rank, choice("direction", direction, _capi.PASSES))
    count = ctypes.c_int()
    check(_library.core().ra_predict_steps(*arguments, None, 0, ctypes.byref(count)))
    steps = (_capi.StepInfo * max(count.value, 1))()
    check(_library.core().ra_predict_steps(*arguments, steps, count.value, ctypes.byref(count)))
    return [StepInfo(**_fields(step)) for step in steps[:count.value]]


class Plan:
    """One problem on one comm: schedule, kernel, buffers. Collective, as are its runs; runs plan and allocate nothing.

    layout, strategy: names; backward: whether backward() will be called; threads: that this rank computes with;
    timeout: seconds that a peer is waited for (0: 60); workspace: address and size of at least info.workspace_bytes,
    64-byte aligned, which stay the caller's; device: "cpu", "cuda", "cuda:1", where all arrays then are.
    """

    def __init__(self, comm: Comm, problem: Problem, *, layout: str = "auto", strategy: str = "auto",
                 backward: bool = False, kernel: Optional[str] = None, threads: int = 0, timeout: float = 0,
                 workspace: Optional[Tuple[int, int]] = None, device: Optional[Any] = None) -> None:
        library = _library.core()
        options = make_options(layout, strategy, backward, kernel, threads, timeout, device)
        if workspace is not None:
            options.workspace, options.workspace_bytes = workspace
        out = ctypes.c_void_p()
        self._handle = 0
        check(library.ra_plan_create(comm.handle, problem.to_c(), options, ctypes.byref(out)))
        self._handle = out.value
        self.memory: Any = None  # for whoever gave the workspace: what keeps it
        self.for_these_shapes = False  # ringattn.torch's: whether the shapes that it is kept for are its own
        self.comm = comm
        comm.adopt(self._handle)
        self.problem = problem
        self.out_dtype = problem.out_dtype or problem.dtype
        self.lse_dtype = "f64" if problem.dtype == "f64" else "f32"
        self.device = _device_of(device)
        first = self.info
        self.rows_q, self.rows_k, self.layout = first.rows_q, first.rows_k, first.layout
        self.shapes = self._shapes()
        self.strides = {name: _arrays.c_order(shape) for name, shape in self.shapes.items()}
        self._run_forward, self._run_backward = library.ra_plan_forward, library.ra_plan_backward
        # One of each for all runs: a plan runs once at a time.
        self._tensors, self._gradients = _new_tensors(), _new_gradients()
        self._forward_slots = _slots(self._tensors)
        self._backward_slots = _slots(self._gradients)
        # And for arrays that are given by address: all dense, or some with strides.
        self._forward_dense, self._forward_strided = _Addresses(_new_tensors(), ()), _Addresses(_new_tensors(), _QKV)
        self._backward_dense = _Addresses(_new_gradients(), ())
        self._backward_strided = _Addresses(_new_gradients(), _QKV + ("dout",))

    @property
    def handle(self) -> int:
        """The ra_plan *."""
        if not self.comm.owns(self._handle):
            self.comm.handle  # which says why where it is the comm that was closed
            raise BrokenError("this plan was closed")
        return self._handle

    @property
    def info(self) -> PlanInfo:
        """What was planned, and what the last runs sent."""
        info = _new_info()
        check(_library.core().ra_plan_describe(self.handle, ctypes.byref(info)))
        return _info_of(info)

    def _shapes(self) -> Dict[str, Tuple[int, ...]]:
        """Of this rank's arrays; those of gradients are the same."""
        p, q, k = self.problem, self.rows_q, self.rows_k
        shapes = {
            "q": (p.batch, q, p.heads_q, p.dim),
            "k": (p.batch, k, p.heads_kv, p.dim),
            "v": (p.batch, k, p.heads_kv, p.dim_v),
            "o": (p.batch, q, p.heads_q, p.dim_v),
            "lse": (p.batch, p.heads_q, q),
        }
        return {**shapes, "dout": shapes["o"], "dq": shapes["q"], "dk": shapes["k"], "dv": shapes["v"]}

    def forward(self, q: Any, k: Any, v: Any, o: Optional[Any] = None, lse: Optional[Any] = None,
                stream: Optional[int] = None) -> Tuple[Any, Any]:
        """q [batch, rows_q, heads_q, dim], k, v: this rank's rows. Gives o [batch, rows_q, heads_q, dim_v], lse
        [batch, heads_q, rows_q]; those given are written to."""
        o = _arrays.empty(q, self.shapes["o"], self.out_dtype) if o is None else o
        lse = _arrays.empty(q, self.shapes["lse"], self.lse_dtype) if lse is None else lse
        kept: List[_arrays.View] = []  # a copy that was made for its strides must live until the call
        slots, dtype = self._forward_slots, self.problem.dtype
        self._put(kept, slots["q"], q, "q", dtype)
        self._put(kept, slots["k"], k, "k", dtype)
        self._put(kept, slots["v"], v, "v", dtype)
        self._put(kept, slots["o"], o, "o", self.out_dtype, output=True)
        self._put_lse(self._tensors, lse, output=True)
        check(_library.core().ra_plan_forward(self.handle, self._tensors, stream))
        return o, lse

    def backward(self, q: Any, k: Any, v: Any, o: Any, lse: Any, dout: Any, dq: Optional[Any] = None,
                 dk: Optional[Any] = None, dv: Optional[Any] = None,
                 stream: Optional[int] = None) -> Tuple[Any, Any, Any]:
        """o and lse as forward gave them, dout [batch, rows_q, heads_q, dim_v]; gives dq, dk, dv of this rank's
        rows."""
        dq = _arrays.empty(q, self.shapes["q"], self.out_dtype) if dq is None else dq
        dk = _arrays.empty(q, self.shapes["k"], self.out_dtype) if dk is None else dk
        dv = _arrays.empty(q, self.shapes["v"], self.out_dtype) if dv is None else dv
        kept: List[_arrays.View] = []
        slots, dtype = self._backward_slots, self.problem.dtype
        self._put(kept, slots["q"], q, "q", dtype)
        self._put(kept, slots["k"], k, "k", dtype)
        self._put(kept, slots["v"], v, "v", dtype)
        self._put(kept, slots["o"], o, "o", self.out_dtype)
        self._put_lse(self._gradients, lse)
        self._put(kept, slots["dout"], dout, "dout", dtype)
        self._put(kept, slots["dq"], dq, "dq", self.out_dtype, output=True)
        self._put(kept, slots["dk"], dk, "dk", self.out_dtype, output=True)
        self._put(kept, slots["dv"], dv, "dv", self.out_dtype, output=True)
        check(_library.core().ra_plan_backward(self.handle, self._gradients, stream))
        return dq, dk, dv

    def forward_at(self, q: int, k: int, v: int, o: int, lse: int, stream: Optional[int] = None,
                   strides: Optional[Tuple[Sequence[int], ...]] = None) -> None:
        """forward() for addresses of arrays of the shapes in `shapes`, which nobody checks. All are dense, or q, k and
        v have these strides, in elements."""
        run = self._forward_dense if strides is None else self._forward_strided.with_strides(strides)
        words = run.words
        words[_Q], words[_K], words[_V], words[_O], words[_LSE] = q, k, v, o, lse
        status = self._run_forward(self.handle, run.structure, stream)
        if status:
            check(status)

    def backward_at(self, q: int, k: int, v: int, o: int, lse: int, dout: int, dq: int, dk: int, dv: int,
                    stream: Optional[int] = None, strides: Optional[Tuple[Sequence[int], ...]] = None) -> None:
        """backward() for addresses of arrays, which nobody checks. All are dense, or q, k, v and dout have these
        strides, in elements."""
        run = self._backward_dense if strides is None else self._backward_strided.with_strides(strides)
        words = run.words
        words[_Q], words[_K], words[_V], words[_O], words[_LSE] = q, k, v, o, lse
        words[_DOUT], words[_DQ], words[_DK], words[_DV] = dout, dq, dk, dv
        status = self._run_backward(self.handle, run.structure, stream)
        if status:
            check(status)

    def wait(self, stream: Optional[int] = None) -> None:
        """Waits until all that is on the stream is done; at once on the CPU."""
        check(_library.core().ra_plan_wait(self.handle, stream))

    def close(self) -> None:
        """Also done by `with`, by collection, and by the comm's close."""
        self.comm.release(self._handle)

    def __enter__(self) -> "Plan":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Plan belongs to its comm and cannot be copied or pickled; a Problem can")

    def __del__(self) -> None:
        if getattr(self, "_handle", 0) and hasattr(self, "comm"):
            self.close()

    def _put(self, kept: List[_arrays.View], slot: _capi.Tensor, x: Any, name: str, dtype: str,
             output: bool = False) -> None:
        """Points the slot of a structure to x, which must be of this type, on the plan's device, of the shape of that
        name."""
        seen = _arrays.view(x, name)
        if seen.dtype != dtype or seen.device != self.device:
            raise ArgumentError(f"{name} is {seen.dtype} on {seen.device[0]}:{seen.device[1]}; this plan takes "
                                f"{dtype} on {self.device[0]}:{self.device[1]}")
        if output and _arrays.is_numpy(x) and (seen.owner is not x or not x.flags.writeable):
            raise ArgumentError(f"{name} is written, so it must be writeable, and its strides whole elements")
        kept.append(seen)
        made = _arrays.tensor(seen, name, self.shapes[name], output)
        slot.data, slot.strided, slot.stride = made.data, made.strided, made.stride

    def _put_lse(self, run: ctypes.Structure, x: Any, output: bool = False) -> None:
        """Points a structure's lse to x [batch, heads_q, rows_q]; any strides."""
        seen = _arrays.view(x, "lse")
        if seen.dtype != self.lse_dtype or seen.device != self.device or seen.shape != self.shapes["lse"]:
            raise ArgumentError(f"lse must be {self.lse_dtype} of shape {list(self.shapes['lse'])} on the plan's "
                                f"device; it is {seen.dtype} of shape {list(seen.shape)}")
        if seen.owner is not x and _arrays.is_numpy(x):
            raise ArgumentError("lse has strides that are no whole elements")
        if output and (seen.repeats() or (_arrays.is_numpy(x) and not x.flags.writeable)):
            raise ArgumentError("lse is written, so it must be writeable, and its elements must not share memory")
        run.lse, run.lse_strided, run.lse_stride = seen.pointer, 1, (ctypes.c_int64 * 3)(*seen.strides)


# Where the addresses are in ra_tensors and ra_gradients, which begin alike: in units of 8 bytes.
_Q, _K, _V, _O, _LSE, _DOUT, _DQ, _DK, _DV = (getattr(_capi.Gradients, _name).offset // 8 for _name in (
    "q", "k", "v", "o", "lse", "dout", "dq", "dk", "dv"))
_QKV = ("q", "k", "v")


def _new_tensors() -> _capi.Tensors:
    made = _capi.Tensors()
    _library.core().ra_tensors_init(ctypes.byref(made))
    return made


def _new_gradients() -> _capi.Gradients:
    made = _capi.Gradients()
    _library.core().ra_gradients_init(ctypes.byref(made))
    return made


class _Addresses:
    """A structure of a run in which only addresses change, and the strides of the arrays named.

    words is its memory in units of 8 bytes: that is written several times as fast as fields of ctypes are.
    """

    def __init__(self, structure: ctypes.Structure, strided: Tuple[str, ...]) -> None:
        self.structure = structure
        self.words = memoryview(structure).cast("B").cast("q")  # type: ignore[arg-type]
        for name in strided:
            getattr(structure, name).strided = 1
        self._strides_at = [(getattr(type(structure), name).offset + _capi.Tensor.stride.offset) // 8
                            for name in strided]

    def with_strides(self, strides: Tuple[Sequence[int], ...]) -> "_Addresses":
        words = self.words
        for at, stride in zip(self._strides_at, strides):
            words[at], words[at + 1], words[at + 2], words[at + 3] = stride
        return self


def _slots(run: ctypes.Structure) -> Dict[str, _capi.Tensor]:
    """The tensors of a structure, which are of its memory."""
    return {name: getattr(run, name) for name, kind in run._fields_ if kind is _capi.Tensor}

"""Tandem's C interface (include/tandem/tandem.h) through ctypes: no dependency but Python's standard library.

    library = Library()                                   # or Library("path/to/libtandem.so")
    query = from_numpy(q)                                 # or tensor(pointer, shape, "bf16", device=("cuda", 0))
    plan = library.plan(FORWARD, query=query, key=key, value=value, out=out, mask_causal=1)
    plan.run(query=query, key=key, value=value, out=out)  # raises TandemError where the library reports one
"""
import ctypes
import os
import pathlib

FORWARD, BACKWARD = 0, 1
BACKENDS = {"auto": 0, "cpu": 1, "sm90": 2, "emulator": 3}

_INT, _UINT, _FLOAT, _BFLOAT = 0, 1, 2, 4  # DLDataTypeCode
_DTYPES = {"fp32": (_FLOAT, 32), "fp16": (_FLOAT, 16), "bf16": (_BFLOAT, 16), "int32": (_INT, 32), "int64": (_INT, 64)}
_NUMPY_DTYPES = {"float32": "fp32", "float16": "fp16", "int32": "int32", "int64": "int64", "uint16": "bf16"}
_DEVICES = {"cpu": 1, "cuda": 2}  # DLDeviceType


class TandemError(RuntimeError):
    """What the library says is wrong: code, argument and message of its tandem_error."""

    def __init__(self, error):
        self.code, self.argument = error.code, error.argument.decode()
        super().__init__(error.message.decode())


class _Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int32), ("argument", ctypes.c_char * 48), ("message", ctypes.c_char * 460)]


class Tensor(ctypes.Structure):
    """DLPack's DLTensor. Its shape and strides live as long as it does; its data is the caller's to keep."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype_code", ctypes.c_uint8),
        ("dtype_bits", ctypes.c_uint8),
        ("dtype_lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_TENSOR = ctypes.POINTER(Tensor)


def _fields(*groups):
    """[("a b", type), ...] as ctypes wants it."""
    return [("struct_size", ctypes.c_size_t)] + [(name, kind) for names, kind in groups for name in names.split()]


class _Problem(ctypes.Structure):
    _fields_ = _fields(
        ("query key value out lse", _TENSOR),
        ("alignment has_scale", ctypes.c_int32),
        ("scale softcap", ctypes.c_float),
        ("sinks mask_causal", ctypes.c_int32),
        ("mask_left mask_right", ctypes.c_int64),
        ("mask_has_diagonal", ctypes.c_int32),
        ("mask_diagonal lengths_batch lengths_max_query lengths_max_key", ctypes.c_int64),
        ("lengths_packed_query lengths_packed_key lengths_used_query lengths_used_key", ctypes.c_int32),
        ("grad_out grad_query grad_key grad_value", _TENSOR),
        ("options_backend options_num_splits", ctypes.c_int32),
        ("options_deterministic options_batch_invariant options_check_lengths options_threads", ctypes.c_int32),
        ("options_executor options_executor_context", ctypes.c_void_p),
        ("options_executor_concurrency", ctypes.c_int32),
        ("options_emulator_seed", ctypes.c_uint64),
    )


class _Arguments(ctypes.Structure):
    _fields_ = _fields(
        ("query key value out lse cu_query cu_key used_query used_key sinks", _TENSOR),
        ("grad_out grad_query grad_key grad_value", _TENSOR),
    )


def tensor(data, shape, dtype, device=("cpu", 0), strides=None):
    """A view of memory at the address `data`; strides are in elements, None is row-major."""
    code, bits = _DTYPES[dtype]
    sizes = (ctypes.c_int64 * len(shape))(*shape)
    steps = None if strides is None else (ctypes.c_int64 * len(shape))(*strides)
    view = Tensor(data, _DEVICES[device[0]], device[1], len(shape), code, bits, 1, sizes, steps, 0)
    view.keep = (sizes, steps)
    return view


def from_numpy(array):
    """A view of a NumPy array, which it keeps alive. uint16 arrays hold the bits of bf16."""
    strides = [step // array.itemsize for step in array.strides]
    view = tensor(array.ctypes.data, array.shape, _NUMPY_DTYPES[array.dtype.name], strides=strides)
    view.keep += (array,)
    return view


def find_library():
    """TANDEM_LIBRARY, the build folder's library, or whatever the system's loader finds."""
    if os.environ.get("TANDEM_LIBRARY"):
        return os.environ["TANDEM_LIBRARY"]
    root = pathlib.Path(__file__).resolve().parents[2]
    for folder in ("build/lib", "build/src"):
        found = sorted((root / folder).glob("libtandem.so*"))
        if found:
            return str(found[0])
    return "libtandem.so.0"


class Plan:
    """A plan of the library; run it as often as you like."""

    def __init__(self, library, handle):
        self._library, self._handle = library, handle
        self.workspace_bytes = library.tandem_plan_workspace_bytes(handle)
        self.backend = library.tandem_backend_name(library.tandem_plan_backend(handle)).decode()

    def __del__(self):
        self._library.tandem_plan_destroy(self._handle)

    def describe(self):
        length = self._library.tandem_plan_describe(self._handle, None, 0)
        text = ctypes.create_string_buffer(length + 1)
        self._library.tandem_plan_describe(self._handle, text, length + 1)
        return text.value.decode()

    def bind(self, workspace=None, stream=None, **tensors):
        """A function of no arguments that runs the plan on these tensors: what a timing loop calls."""
        arguments, error = _Arguments(), _Error()
        self._library.tandem_arguments_init(ctypes.byref(arguments), ctypes.sizeof(arguments))
        for name, view in tensors.items():
            setattr(arguments, name, ctypes.pointer(view))
        run, handle, bytes_ = self._library.tandem_plan_run, self._handle, self.workspace_bytes

        def call():
            if run(handle, ctypes.byref(arguments), workspace, bytes_, stream, ctypes.byref(error)) != 0:
                raise TandemError(error)

        call.keep = (self, tensors)
        return call

    def run(self, workspace=None, stream=None, **tensors):
        self.bind(workspace, stream, **tensors)()


class Library:
    def __init__(self, path=None):
        self.path = str(path or find_library())
        self._library = library = ctypes.CDLL(self.path)
        size, pointer, int32 = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int32
        for name, result, parameters in (
            ("tandem_version", ctypes.c_char_p, []),
            ("tandem_backend_name", ctypes.c_char_p, [int32]),
            ("tandem_available", int32, [int32, pointer]),
            ("tandem_problem_init", None, [pointer, size]),
            ("tandem_arguments_init", None, [pointer, size]),
            ("tandem_plan_create", int32, [int32, pointer, pointer, pointer]),
            ("tandem_plan_destroy", None, [pointer]),
            ("tandem_plan_workspace_bytes", size, [pointer]),
            ("tandem_plan_backend", int32, [pointer]),
            ("tandem_plan_describe", size, [pointer, ctypes.c_char_p, size]),
            ("tandem_plan_run", int32, [pointer, pointer, pointer, size, pointer, pointer]),
        ):
            function = getattr(library, name)
            function.restype, function.argtypes = result, parameters
        self.version = library.tandem_version().decode()

    def unavailable(self, backend):
        """Why a backend can't run here; empty if it can."""
        error = _Error()
        code = self._library.tandem_available(BACKENDS[backend], ctypes.byref(error))
        return "" if code == 0 else error.message.decode()

    def plan(self, pass_, backend="auto", scale=None, **fields):
        """Fields are those of tandem_problem: tensors, mask_causal, lengths_batch, options_threads and so on."""
        problem, error, handle = _Problem(), _Error(), ctypes.c_void_p()
        self._library.tandem_problem_init(ctypes.byref(problem), ctypes.sizeof(problem))
        problem.options_backend = BACKENDS[backend]
        if scale is not None:
            problem.has_scale, problem.scale = 1, scale
        for name, value in fields.items():
            if not hasattr(problem, name):
                raise TypeError(f"tandem_problem has no field {name}")
            setattr(problem, name, ctypes.pointer(value) if isinstance(value, Tensor) else value)
        code = self._library.tandem_plan_create(pass_, ctypes.byref(problem), ctypes.byref(handle), ctypes.byref(error))
        if code != 0:
            raise TandemError(error)
        return Plan(self._library, handle)

"""A thin ctypes view of Tandem's C ABI (include/tandem/tandem.h): numpy arrays, torch tensors or raw pointers in, nothing copied.

    library = Library("build/src/libtandem.so")
    plan = library.plan(query=Tensor.of(q), key=Tensor.of(k), value=Tensor.of(v), mask_causal=1)
    plan.run(query=Tensor.of(q), key=..., value=..., out=..., stream=0)
"""
import ctypes
import dataclasses
import pathlib

CODES = {0: "ok", 1: "invalid argument", 2: "unsupported", 3: "no device", 4: "out of memory", 5: "driver", 6: "internal"}
DTYPES = {"float32": (2, 32), "float16": (2, 16), "bfloat16": (4, 16), "int32": (0, 32), "int64": (0, 64), "int8": (0, 8),
          "float8_e4m3fn": (10, 8)}
CPU, CUDA = 1, 2
FORWARD, BACKWARD, QUANTIZE = 0, 1, 2
SCALE_TENSOR, SCALE_HEAD, SCALE_BLOCK = 0, 1, 2
VALUE_ROWS, VALUE_PACKED = 0, 1
BACKENDS = {"auto": 0, "cpu": 1, "sm90": 2, "emulator": 3}


class DLTensor(ctypes.Structure):
    """dlpack.h's DLTensor, with DLDevice and DLDataType spelled out."""
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


class Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int32), ("argument", ctypes.c_char * 48), ("message", ctypes.c_char * 460)]


class TandemError(RuntimeError):
    def __init__(self, error):
        self.code, self.argument = CODES.get(error.code, error.code), error.argument.decode()
        super().__init__(f"{self.code}: {self.argument + ': ' if self.argument else ''}{error.message.decode()}")


TENSOR = ctypes.POINTER(DLTensor)
PROBLEM_FIELDS = [
    ("struct_size", ctypes.c_size_t), ("query", TENSOR), ("key", TENSOR), ("value", TENSOR), ("out", TENSOR), ("lse", TENSOR),
    ("alignment", ctypes.c_int32), ("has_scale", ctypes.c_int32), ("scale", ctypes.c_float), ("softcap", ctypes.c_float),
    ("sinks", ctypes.c_int32), ("mask_causal", ctypes.c_int32), ("mask_left", ctypes.c_int64), ("mask_right", ctypes.c_int64),
    ("mask_has_diagonal", ctypes.c_int32), ("mask_diagonal", ctypes.c_int64), ("lengths_batch", ctypes.c_int64),
    ("lengths_max_query", ctypes.c_int64), ("lengths_max_key", ctypes.c_int64), ("lengths_packed_query", ctypes.c_int32),
    ("lengths_packed_key", ctypes.c_int32), ("lengths_used_query", ctypes.c_int32), ("lengths_used_key", ctypes.c_int32),
    ("grad_out", TENSOR), ("grad_query", TENSOR), ("grad_key", TENSOR), ("grad_value", TENSOR),
    ("options_backend", ctypes.c_int32), ("options_num_splits", ctypes.c_int32), ("options_deterministic", ctypes.c_int32),
    ("options_batch_invariant", ctypes.c_int32), ("options_check_lengths", ctypes.c_int32), ("options_threads", ctypes.c_int32),
    ("options_executor", ctypes.c_void_p), ("options_executor_context", ctypes.c_void_p),
    ("options_executor_concurrency", ctypes.c_int32), ("options_emulator_seed", ctypes.c_uint64)]
PROBLEM_FIELDS += [(f"quantization_{name}", ctypes.c_int32) for name in [
    "query", "key", "value", "query_rows", "key_rows", "value_rows", "value_layout", "value_mean", "promote", "hadamard", "amax"]]
PROBLEM_FIELDS += [(f"rope_{name}", ctypes.c_int32) for name in ["dims", "interleaved", "positions"]]
PROBLEM_FIELDS += [("quantization_sign_seed", ctypes.c_uint64)]
PROBLEM_FIELDS += [(name, TENSOR) for name in [
    "quantized_query", "quantized_key", "quantized_value", "query_scale", "key_scale", "value_scale", "value_mean", "rope_cos",
    "rope_sin"]]
PROBLEM_FIELDS += [("quantization_known_mean", ctypes.c_int32)]
ARGUMENT_NAMES = ["query", "key", "value", "out", "lse", "cu_query", "cu_key", "used_query", "used_key", "sinks", "grad_out",
                  "grad_query", "grad_key", "grad_value", "quantized_query", "quantized_key", "quantized_value", "query_scale",
                  "key_scale", "value_scale", "value_mean", "query_amax", "key_amax", "value_amax", "out_scale", "rope_cos",
                  "rope_sin", "position"]


class Problem(ctypes.Structure):
    _fields_ = PROBLEM_FIELDS


class Arguments(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t)] + [(name, TENSOR) for name in ARGUMENT_NAMES]


@dataclasses.dataclass
class Tensor:
    """A tensor by its parts: pointer, shape, strides in elements, dtype name, device (CPU or CUDA) and its number."""
    data: int
    shape: tuple
    strides: tuple
    dtype: str
    device: int = CPU
    index: int = 0

    @staticmethod
    def of(array):
        if hasattr(array, "data_ptr"):  # torch
            return Tensor(array.data_ptr(), tuple(array.shape), array.stride(), str(array.dtype).removeprefix("torch."),
                          CUDA if array.is_cuda else CPU, array.get_device() if array.is_cuda else 0)
        return Tensor(array.ctypes.data, array.shape, tuple(s // array.itemsize for s in array.strides), array.dtype.name)

    def dl(self):
        code, bits = DTYPES[self.dtype]
        rank = len(self.shape)
        return DLTensor(self.data, self.device, self.index, rank, code, bits, 1, (ctypes.c_int64 * rank)(*self.shape),
                        (ctypes.c_int64 * rank)(*self.strides), 0)


class Plan:
    def __init__(self, library, handle):
        self.library, self.handle = library, handle

    def __del__(self):
        self.library.c.tandem_plan_destroy(self.handle)

    @property
    def workspace_bytes(self):
        return self.library.c.tandem_plan_workspace_bytes(self.handle)

    @property
    def block_rows(self):
        """Rows of a block of scales of query, key and value, by which they must be quantised for this plan."""
        rows = [ctypes.c_int32() for _ in range(3)]
        self.library.c.tandem_plan_block_rows(self.handle, *[ctypes.byref(r) for r in rows])
        return tuple(r.value for r in rows)

    def describe(self):
        size = self.library.c.tandem_plan_describe(self.handle, None, 0) + 1
        buffer = ctypes.create_string_buffer(size)
        self.library.c.tandem_plan_describe(self.handle, buffer, size)
        return buffer.value.decode()

    def bind(self, workspace=0, workspace_bytes=0, stream=0, **tensors):
        """A function of no arguments that runs the plan on these tensors; cheap to call again and again."""
        arguments = Arguments()
        self.library.c.tandem_arguments_init(ctypes.byref(arguments), ctypes.sizeof(arguments))
        keep = self.library.point(arguments, tensors)
        error = Error()
        run, handle = self.library.c.tandem_plan_run, self.handle

        def call(_keep=keep):
            if run(handle, ctypes.byref(arguments), workspace, workspace_bytes, stream, ctypes.byref(error)) != 0:
                raise TandemError(error)
        return call

    def run(self, **arguments):
        self.bind(**arguments)()


class Library:
    def __init__(self, path):
        self.c = ctypes.CDLL(str(pathlib.Path(path).resolve()))
        self.c.tandem_plan_create.argtypes = [ctypes.c_int32, ctypes.POINTER(Problem), ctypes.POINTER(ctypes.c_void_p),
                                              ctypes.POINTER(Error)]
        self.c.tandem_plan_destroy.argtypes = [ctypes.c_void_p]
        self.c.tandem_plan_workspace_bytes.argtypes = [ctypes.c_void_p]
        self.c.tandem_plan_workspace_bytes.restype = ctypes.c_size_t
        self.c.tandem_plan_describe.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
        self.c.tandem_plan_describe.restype = ctypes.c_size_t
        self.c.tandem_plan_block_rows.argtypes = [ctypes.c_void_p] + 3 * [ctypes.POINTER(ctypes.c_int32)]
        self.c.tandem_plan_run.argtypes = [ctypes.c_void_p, ctypes.POINTER(Arguments), ctypes.c_void_p, ctypes.c_size_t,
                                           ctypes.c_void_p, ctypes.POINTER(Error)]
        self.c.tandem_problem_init.argtypes = [ctypes.POINTER(Problem), ctypes.c_size_t]
        self.c.tandem_arguments_init.argtypes = [ctypes.POINTER(Arguments), ctypes.c_size_t]
        self.c.tandem_available.argtypes = [ctypes.c_int32, ctypes.POINTER(Error)]
        self.c.tandem_version.restype = ctypes.c_char_p

    def unavailable(self, backend):
        """Why a backend can't run here; empty if it can."""
        error = Error()
        return "" if self.c.tandem_available(BACKENDS[backend], ctypes.byref(error)) == 0 else error.message.decode()

    @property
    def version(self):
        return self.c.tandem_version().decode()

    @staticmethod
    def point(struct, tensors):
        """Points a struct's fields at tensors; returns what must stay alive as long as the struct."""
        keep = []
        for name, tensor in tensors.items():
            if tensor is not None:
                keep.append(tensor.dl())
                setattr(struct, name, ctypes.pointer(keep[-1]))
        return keep

    def plan(self, direction=FORWARD, backend="auto", scale=None, **fields):
        """Fields are those of tandem_problem; tensors are Tensor values."""
        problem = Problem()
        self.c.tandem_problem_init(ctypes.byref(problem), ctypes.sizeof(problem))
        keep = self.point(problem, {k: v for k, v in fields.items() if isinstance(v, Tensor)})
        for name, value in fields.items():
            if value is not None and not isinstance(value, Tensor):
                setattr(problem, name, value)
        problem.options_backend = BACKENDS[backend]
        if scale is not None:
            problem.has_scale, problem.scale = 1, scale
        handle, error = ctypes.c_void_p(), Error()
        if self.c.tandem_plan_create(direction, ctypes.byref(problem), ctypes.byref(handle), ctypes.byref(error)) != 0:
            raise TandemError(error)
        del keep
        return Plan(self, handle)

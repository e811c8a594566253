"""8-bit attention for the language model: quantises query, key and value of a layer and attends, by each method, in CPU
memory or on the GPU.
"""
import math

import numpy as np

from tandem_ctypes import (CPU, CUDA, FORWARD, QUANTIZE, SCALE_BLOCK, SCALE_TENSOR, VALUE_PACKED, Tensor)

# Granularity of scales, Hadamard transform, dtype of query and key.
METHODS = {
    "fp8": (SCALE_BLOCK, 1, "float8_e4m3fn"),
    "fp8-per-tensor": (SCALE_TENSOR, 0, "float8_e4m3fn"),
    "fp8-no-block": (SCALE_TENSOR, 1, "float8_e4m3fn"),
    "fp8-no-incoherent": (SCALE_BLOCK, 0, "float8_e4m3fn"),
    "int8-qk": (SCALE_BLOCK, 1, "int8"),
}
BYTES = {"float16": 2, "float32": 4, "float8_e4m3fn": 1, "int8": 1}


class HostMemory:
    """numpy arrays by name, with the interface of CudaMemory."""

    stream = 0

    def __init__(self):
        self.blocks = {}

    def block(self, name, size):
        raw = self.blocks.get(name)
        if raw is None or raw.nbytes < size + 256:
            raw = self.blocks[name] = np.empty(size + 256, np.uint8)
        return raw.ctypes.data + -raw.ctypes.data % 256

    def upload(self, name, array):
        self.blocks[name] = array
        return array.ctypes.data

    def download(self, address, shape, dtype):
        count = math.prod(shape)
        raw = (np.ctypeslib.as_array((np.ctypeslib.ctypes.c_uint8 * (count * np.dtype(dtype).itemsize)).from_address(address)))
        return raw.view(dtype).reshape(shape).copy()


class Fp8Attention:
    """Attention of the model by one method; `memory` is HostMemory or CudaMemory."""

    def __init__(self, library, backend, memory, method, threads=0):
        self.library, self.backend, self.memory, self.method = library, backend, memory, method
        self.threads = threads
        self.device = CPU if backend == "cpu" else CUDA
        self.plans = {}  # by sequence length

    def tensor(self, name, dtype, shape):
        strides, step = [], 1
        for size in reversed(shape):
            strides.insert(0, step)
            step *= size
        return Tensor(self.memory.block(name, math.prod(shape) * BYTES[dtype]), tuple(shape), tuple(strides), dtype, self.device)

    def make(self, query, key, scale):
        """Both plans for a length, and the tensors that pass between them."""
        granularity, hadamard, dtype = METHODS[self.method]
        seqlen, heads, dim = query
        key_heads = key[1]
        eight = {
            "query": self.tensor("query8", dtype, (1, seqlen, heads, dim)),
            "key": self.tensor("key8", dtype, (1, seqlen, key_heads, dim)),
            "value": self.tensor("value8", "float8_e4m3fn", (1, key_heads, -(-seqlen // 16), dim, 16)),
        }
        how = {"quantization_query": granularity, "quantization_key": granularity, "quantization_value": granularity,
               "quantization_hadamard": hadamard, "quantization_value_layout": VALUE_PACKED, "options_threads": self.threads}
        out = self.tensor("out", "float16", (1, *query))
        attend = self.library.plan(FORWARD, backend=self.backend, scale=scale, mask_causal=1, out=out, **eight, **how)
        rows = dict(zip(("query", "key", "value"), attend.block_rows))
        scales = {}
        for name, count in (("query", heads), ("key", key_heads), ("value", key_heads)):
            shape = (1,) if granularity == SCALE_TENSOR else (1, count, -(-seqlen // rows[name]))
            scales[f"{name}_scale"] = self.tensor(f"{name}_scale", "float32", shape)
        sixteen = {"query": self.tensor("query", "float16", (1, *query)), "key": self.tensor("key", "float16", (1, *key)),
                   "value": self.tensor("value", "float16", (1, *key))}
        quantised = {f"quantized_{name}": tensor for name, tensor in eight.items()}
        how |= {f"quantization_{name}_rows": count for name, count in rows.items()}
        quantise = self.library.plan(QUANTIZE, backend=self.backend, **sixteen, **quantised, **scales, **how)
        return quantise, attend, sixteen, quantised, eight, scales, out

    def run(self, plan, **tensors):
        size = plan.workspace_bytes
        plan.run(workspace=self.memory.block("workspace", max(size, 1)), workspace_bytes=size, stream=self.memory.stream,
                 **tensors)

    def __call__(self, query, key, value, scale):
        if query.shape not in self.plans:
            self.plans[query.shape] = self.make(query.shape, key.shape, scale)
        quantise, attend, sixteen, quantised, eight, scales, out = self.plans[query.shape]
        for name, array in (("query", query), ("key", key), ("value", value)):
            half = np.ascontiguousarray(array, np.float16)
            sixteen[name].data = self.memory.upload(name, half)
        self.run(quantise, **sixteen, **quantised, **scales)
        self.run(attend, **eight, **scales, out=out)
        return self.memory.download(out.data, query.shape, np.float16).astype(np.float32)


def perplexity_of_windows(model, ids, window, attention):
    """Perplexity over windows of tokens, each on its own."""
    loss = count = 0
    for begin in range(0, len(ids) - 1, window):
        part = ids[begin:begin + window]
        if len(part) < 2:
            continue
        loss += math.log(model.perplexity(part, attention)) * (len(part) - 1)
        count += len(part) - 1
    return math.exp(loss / count)

"""Memory of the first GPU through the CUDA driver and ctypes: enough to hand tensors to Tandem."""
import ctypes

import numpy as np


class CudaMemory:
    def __init__(self):
        self._driver = ctypes.CDLL("libcuda.so.1")
        device, context, stream = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)
        self._call("cuStreamCreate", ctypes.byref(stream), 0)
        self.stream = stream
        self._blocks = {}

    def _call(self, name, *arguments):
        error = getattr(self._driver, name)(*arguments)
        if error != 0:
            raise RuntimeError(f"{name} failed with CUDA error {error}")

    def block(self, name, size):
        """The address of a block of at least `size` bytes, kept under its name from call to call."""
        address, capacity = self._blocks.get(name, (None, 0))
        if capacity < size or address is None:
            if address is not None:
                self._call("cuMemFree_v2", ctypes.c_uint64(address))
            pointer = ctypes.c_uint64()
            self._call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(max(size, 256)))
            address = pointer.value
            self._blocks[name] = (address, size)
        return address

    def upload(self, name, array):
        address = self.block(name, array.nbytes)
        pointer = ctypes.c_void_p(array.ctypes.data)
        self._call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), pointer, ctypes.c_size_t(array.nbytes))
        return address

    def download(self, address, shape, dtype):
        self.synchronize()
        array = np.empty(shape, dtype)
        pointer = ctypes.c_void_p(array.ctypes.data)
        self._call("cuMemcpyDtoH_v2", pointer, ctypes.c_uint64(address), ctypes.c_size_t(array.nbytes))
        return array

    def synchronize(self):
        self._call("cuStreamSynchronize", self.stream)

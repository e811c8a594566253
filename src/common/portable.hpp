// The one macro for functions that host code, GPU kernels and emulated kernels share.
#pragma once

#if defined(__CUDACC__)
#define TANDEM_SHARED_FUNCTION __host__ __device__ __forceinline__
#else
#define TANDEM_SHARED_FUNCTION inline
#endif

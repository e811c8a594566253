// How functions and kernels are declared on the GPU. The emulator has its own version of these macros.
#pragma once

/// A function of a kernel: inlined always, since a call would make ptxas serialise wgmma.
#define TANDEM_DEVICE __device__ __forceinline__

/// Defines a kernel of C linkage whose body calls `function(parameters)`. One block per SM is what caps registers,
/// without which setmaxnreg is ignored (ptxas warning C7508). The emulator also wants to know the shared-memory struct.
#define TANDEM_KERNEL(name, Parameters, threads, Shared, function)                                               \
  extern "C" __global__ void __launch_bounds__(threads, 1) name(const __grid_constant__ Parameters parameters) { \
    function(parameters);                                                                                        \
  }

/// The same for helper kernels without such needs: several blocks an SM, no dynamic shared memory.
#define TANDEM_SIMPLE_KERNEL(name, Parameters, threads, function)                                             \
  extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ Parameters parameters) { \
    function(parameters);                                                                                     \
  }

// All that kernels know of the hardware: one thin function per instruction. nvcc gets inline PTX; the host compiler
// gets the same names and signatures from the emulator. No kernel has a branch for either.
#pragma once

#include "backends/sm90/ptx/types.hpp"

#if defined(__CUDACC__)
#include "backends/sm90/ptx/barrier.cuh"
#include "backends/sm90/ptx/math.cuh"
#include "backends/sm90/ptx/qualifiers.cuh"
#include "backends/sm90/ptx/tma.cuh"
#include "backends/sm90/ptx/warp.cuh"
#include "backends/sm90/ptx/wgmma.cuh"
#else
#include "backends/emulator/ptx_host.hpp"
#endif

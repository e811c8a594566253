// Which instruction sets the CPU's kernels are compiled for: the widest that differ in speed. SVE's vectors can't be
// members of arrays, which the micro-kernels need; NEON serves those machines. To be included before Highway.
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

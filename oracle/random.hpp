// Random data whose every element is a function of seed and index, so that tools and tests can make any row of a large
// tensor again without the rest.
#pragma once

#include <cmath>
#include <cstdint>

namespace oracle {

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014), applied twice to a counter.
inline uint64_t hash(uint64_t seed, uint64_t index) {
  uint64_t z = (seed + 1) * 0x9e3779b97f4a7c15u + index * 0xd1342543de82ef95u;
  for (int round = 0; round < 2; ++round) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
  }
  return z;
}

/// Uniform in (0, 1).
inline double uniform(uint64_t seed, uint64_t index) {
  return (static_cast<double>(hash(seed, index) >> 11) + 0.5) * 0x1p-53;
}

/// Standard normal (Box and Muller 1958); elements 2k and 2k + 1 are the two of a pair.
inline float normal(uint64_t seed, uint64_t index) {
  const uint64_t pair = hash(seed, index / 2);
  const double radius = (static_cast<double>(pair >> 32) + 0.5) * 0x1p-32;
  const double angle = (static_cast<double>(pair & 0xffffffffu) + 0.5) * 0x1p-32 * 6.283185307179586;
  const double length = std::sqrt(-2 * std::log(radius));
  return static_cast<float>(length * (index % 2 == 0 ? std::cos(angle) : std::sin(angle)));
}

/// Integer in [low, high].
inline int64_t integer(uint64_t seed, uint64_t index, int64_t low, int64_t high) {
  return low + static_cast<int64_t>(hash(seed, index) % static_cast<uint64_t>(high - low + 1));
}

}  // namespace oracle

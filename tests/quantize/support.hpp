// What the quantiser's tests share, on the CPU, in the emulator and on a GPU: a case with its tensors, its run on a
// backend, and a judge in float64 that shares nothing with the quantisers but the formats' definitions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tandem/tandem.hpp"
#include "tools/memory.hpp"

namespace quantize_support {

enum class Layout {
  contiguous,
  head_major,  // (batch, head, row, column) in memory
  gaps         // rows and heads further apart than they need be, by odd amounts
};

/// What inputs hold besides normal numbers.
enum class Special { none, zeros, tiny, infinite, nan, huge };

struct Case {
  std::string name;
  tandem::Dtype dtype = tandem::Dtype::bf16;
  int64_t batch = 1, queries = 64, keys = 64, query_heads = 1, key_heads = 1, head_dim = 64, value_dim = 64;
  std::vector<int32_t> cu_query, cu_key, used_query, used_key;  // where not empty
  bool query = true, key = true, value = true;                  // which tensors are quantised
  tandem::Quantization quantization;
  tandem::Rope rope;
  bool int8 = false;  // query and key
  Layout layout = Layout::contiguous, target_layout = Layout::contiguous;
  Special special = Special::none;
  float value_offset = 0;  // of value's normal numbers
  uint64_t seed = 1;
};

/// The sequences' rows of one side of a case.
struct Side {
  int64_t batch, longest, total;
  const std::vector<int32_t>&cumulative, &used;
  bool packed() const { return !cumulative.empty(); }
  int64_t first(int64_t b) const { return packed() ? cumulative[static_cast<size_t>(b)] : 0; }
  int64_t room(int64_t b) const { return packed() ? cumulative[static_cast<size_t>(b) + 1] - first(b) : longest; }
  int64_t count(int64_t b) const { return used.empty() ? room(b) : used[static_cast<size_t>(b)]; }
};
Side side(const Case& c, bool of_query);

/// Bytes with a spec; those that are no element's are guards.
struct Blob {
  static constexpr uint8_t guard = 0xa5;
  static constexpr size_t front = 256;
  tandem::TensorSpec spec;
  std::vector<uint8_t> bytes;
  bool present() const { return spec.present(); }
  int64_t offset(std::initializer_list<int64_t> index) const;
  template <class T>
  T& at(std::initializer_list<int64_t> index) {
    return reinterpret_cast<T*>(bytes.data() + front)[offset(index)];
  }
  template <class T>
  const T& at(std::initializer_list<int64_t> index) const {
    return reinterpret_cast<const T*>(bytes.data() + front)[offset(index)];
  }
};

/// A tensor that is quantised.
struct Operand {
  Blob source, target, scale, amax;
};

struct Job {
  Case c;
  Operand query, key, value;
  Blob value_mean, rope_cos, rope_sin;
  std::vector<int32_t> position;
};

/// The case's tensors: sources normal where lengths say that there is data and NaN elsewhere, targets guards.
Job make_job(const Case& c);

/// Plans and runs with a workspace of NaN; the results come back into the job. The text says what failed, or is empty.
std::string run(Job& job, tandem::Backend backend, tandem::tools::Memory& memory, uint64_t emulator_seed = 1);

/// A mean of the caller's (Quantization::known_mean): none that a search would find.
constexpr float known_mean(int64_t number) { return 0.25F + 0.0625F * static_cast<float>(number % 9); }

/// The first things that are wrong with the results, or nothing.
std::string judge(const Job& job);

/// Which of the results differ in any byte.
std::string compare(const Job& a, const Job& b);

/// Shapes, layouts, methods and special values of every sort.
std::vector<Case> cases();
/// So many blocks that a kernel's block of threads takes several heads: on the emulator already of few rows.
Case many_heads(const char* name, int64_t rows);

/// The problem and its arguments, for tests of refusals; the data is the job's own.
tandem::Problem problem_of(const Job& job, tandem::Device device);

}  // namespace quantize_support

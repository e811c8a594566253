// The C++ interface of Tandem: exact attention as a plan that is made once and run many times.
//
//   tandem::Problem problem;                       // what a plan depends on: shapes, strides, dtypes, mask, scale
//   problem.query = tandem::contiguous(tandem::Dtype::bf16, tandem::cuda(0), {batch, seqlen, heads, head_dim});
//   ...
//   auto plan = tandem::plan(tandem::Pass::forward, problem);          // decides and prepares; may allocate
//   tandem::Arguments arguments;                   // what may change between runs: the pointers
//   ...
//   tandem::Status status = plan->run(arguments, workspace, bytes, stream);   // only launches on the stream
//
// Nothing here throws, aborts or prints; every failure is a Status that names the argument at fault.
// No CUDA or framework header is needed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "tandem/export.h"
#include "tandem/version.h"

namespace tandem {

// ---------------------------------------------------------------------------------------------- errors as values

enum class Code : int {
  ok = 0,
  invalid_argument = 1,  // the argument is wrong, whatever the backend; the message says what would be right
  unsupported = 2,       // a right request that this backend or this build can't serve; the message names the feature
  no_device = 3,         // the backend's device or driver is missing, too old, or of another kind
  out_of_memory = 4,
  driver = 5,   // the CUDA driver reported an error; the message holds its name
  internal = 6  // a fault of Tandem: please report it
};

/// The outcome of a call. Of fixed size, so that making one never allocates. `argument` is the name of the field at
/// fault as this header spells it ("key", "mask.left"), or empty; `message` is one English sentence.
struct [[nodiscard]] Status {
  Code code = Code::ok;
  char argument[48] = {};
  char message[460] = {};
  bool ok() const noexcept { return code == Code::ok; }
};

/// A value, or the Status that says why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) noexcept : value_(std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(const Status& status) noexcept : status_(status) {}  // NOLINT(google-explicit-constructor)
  bool ok() const noexcept { return value_.has_value(); }
  explicit operator bool() const noexcept { return ok(); }
  const Status& status() const noexcept { return status_; }
  T& value() noexcept { return *value_; }
  const T& value() const noexcept { return *value_; }
  T* operator->() noexcept { return &*value_; }
  const T* operator->() const noexcept { return &*value_; }
  T& operator*() noexcept { return *value_; }
  const T& operator*() const noexcept { return *value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

// ---------------------------------------------------------------------------------------------- tensors

enum class Dtype : int { none = 0, fp32 = 1, fp16 = 2, bf16 = 3, e4m3 = 4, int8 = 5, int32 = 6, int64 = 7 };

enum class DeviceKind : int { cpu = 0, cuda = 1 };
struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
  friend bool operator==(const Device&, const Device&) = default;
};
inline Device cpu() noexcept { return {DeviceKind::cpu, 0}; }
inline Device cuda(int index = 0) noexcept { return {DeviceKind::cuda, index}; }

/// What a tensor looks like; Dtype::none means that there is none. Strides are in elements, not bytes. `alignment` is
/// what the caller promises of the data pointer, in bytes; below 16 the GPU needs a copy, which the plan states.
struct TensorSpec {
  static constexpr int max_rank = 5;
  Dtype dtype = Dtype::none;
  Device device;
  int rank = 0;
  std::array<int64_t, max_rank> size{};
  std::array<int64_t, max_rank> stride{};
  int alignment = 16;
  bool present() const noexcept { return dtype != Dtype::none; }
};

/// A spec with row-major strides.
TANDEM_EXPORT TensorSpec contiguous(Dtype dtype, Device device, std::initializer_list<int64_t> size) noexcept;

struct TensorView {
  TensorSpec spec;
  void* data = nullptr;
  bool present() const noexcept { return spec.present(); }
};

// ---------------------------------------------------------------------------------------------- the problem

enum class Pass : int { forward = 0, backward = 1, quantize = 2, append = 3, merge = 4 };
enum class Backend : int { automatic = 0, cpu = 1, sm90 = 2, emulator = 3 };

/// Which keys a query sees. Masks align to the bottom right: query i of a sequence with `sq` queries and `sk` keys
/// stands at key position p = i + (sk - sq), or p = i + *diagonal where that is set. It sees keys p - left to p +
/// right, both included; -1 means unlimited; other negative values are errors. `causal` is the same as right = 0.
struct Mask {
  bool causal = false;
  int64_t left = -1;
  int64_t right = -1;
  std::optional<int64_t> diagonal;
};

/// How sequence lengths are given. Packed: query is (total_query, heads, head_dim), with Arguments::cu_query holding
/// the batch + 1 cumulative lengths, int32, on the tensors' device; likewise for key and value. Used:
/// Arguments::used_query holds batch lengths, int32, of which only so many rows count. `batch` is needed when query or
/// key are packed. The maxima bound every sequence's length, which is checked where lengths are; -1 takes the total.
struct Lengths {
  int64_t batch = -1;
  int64_t max_query = -1;
  int64_t max_key = -1;
  bool packed_query = false;
  bool packed_key = false;
  bool used_query = false;
  bool used_key = false;
};

/// Runs tasks on threads of the caller's own. `parallel(n, task)` calls task(0) to task(n - 1), in any order and at the
/// same time where it can, and returns when all are done. `concurrency` is how many run at once.
struct Executor {
  std::function<void(int64_t, const std::function<void(int64_t)>&)> parallel;
  int concurrency = 1;
};

struct Options {
  Backend backend = Backend::automatic;      // automatic: sm90 for tensors on CUDA, cpu for tensors on the CPU
  int num_splits = 1;                        // splits of the keys; only 1 is served yet
  bool deterministic = false;                // backward only: the forward always is
  bool batch_invariant = false;              // the variant must not depend on the batch or on lengths
  bool check_lengths = false;                // run() validates lengths on the GPU too, with a synchronisation
  int threads = 0;                           // CPU threads; 0: as many as the machine has
  std::shared_ptr<const Executor> executor;  // CPU threads of the caller's own, instead
  uint64_t emulator_seed = 1;                // emulator only: the seed of its schedule and delays
};

/// How many elements share a scale, by which a stored e4m3 or int8 element is multiplied to give its value. Scales are
/// positive float32 of any strides. tensor: (1). head: (batch, heads). block: rows r to r + rows - 1 of a head and
/// sequence, (batch, heads, ceil(seqlen / rows)); of packed rows (heads, total / rows + batch), where sequence b, which
/// begins at row `start` of the tensor, has its first block at start / rows + b.
enum class Granularity : int { tensor = 0, head = 1, block = 2 };

/// Where an e4m3 value lies. rows: as 16-bit values do. packed: as the tensor cores read it, transposed in groups of 16
/// keys: (batch, key_heads, ceil(seqlen_key / 16), value_dim, 16), packed sequences (key_heads, total_key / 16 + batch,
/// value_dim, 16) with the first group of sequence b at start / 16 + b; the last two dimensions contiguous. Within a
/// group, place 4t + i holds key 2t + (i & 1) + 8 (i >> 1). Keys beyond a sequence's end are stored as 0.
enum class ValueLayout : int { rows = 0, packed = 1 };

/// 8-bit attention (FA-3 section 3.3): how the tensors are or shall be quantised.
struct Quantization {
  Granularity query = Granularity::block, key = Granularity::block, value = Granularity::block;
  /// Rows of a block; 0: the forward plan chooses, and Plan::quantization() tells. A tile of the kernel must see one
  /// scale, so not every number can be served.
  int query_rows = 0, key_rows = 0, value_rows = 0;
  ValueLayout value_layout = ValueLayout::packed;
  /// Quantising: the mean of each head and channel of value is taken out and written to value_mean (read from there
  /// with known_mean); forward: it is added to out. Exact, since each row of the softmax sums to 1; it keeps sums small
  /// (see `promote`).
  bool value_mean = false;
  /// Forward: partial sums of the tensor cores, which truncate, are promoted to float32 sums. Off is faster and wrong
  /// by percents for long sequences whose values have a mean.
  bool promote = true;
  // Quantising alone:
  bool hadamard = false;    // query and key times random signs and a Hadamard matrix (section 3.3, "incoherent")
  uint64_t sign_seed = 1;   // of the signs, the same for query and key
  bool amax = false;        // tensor and head scales: Arguments::query_amax ... are given, not searched for
  bool known_mean = false;  // value_mean: Arguments::value_mean is given (any numbers do), not searched for
};

/// Rotary embedding of the first `dims` dimensions of query and key while they are quantised; 0: none. Row r of a
/// sequence has position r, plus Arguments::position of its sequence if `positions`. Halves: dimension i turns with i +
/// dims / 2; interleaved: 2i with 2i + 1.
struct Rope {
  int dims = 0;
  bool interleaved = false;
  bool positions = false;  // Arguments::position (batch), int32
};

/// What a plan depends on. Layouts: query (batch, seqlen_query, query_heads, head_dim), key (batch, seqlen_key,
/// key_heads, head_dim), value (batch, seqlen_key, key_heads, value_dim), out (batch, seqlen_query, query_heads,
/// value_dim); packed ones without batch (see Lengths). Any strides whose last one is 1. query_heads must be a multiple
/// of key_heads. fp16 and bf16, on the CPU fp32 too; the four agree. Absent `out` means contiguous, of query's dtype.
/// `lse` (float32, (batch, query_heads, seqlen_query), packed (query_heads, total_query), any strides) is optional: the
/// natural logarithm of the sum of exponentials of the scaled scores, -inf for a query that sees no key.
struct Problem {
  TensorSpec query, key, value, out, lse;
  std::optional<float> scale;  // any finite number; absent: 1 / sqrt(head_dim)
  float softcap = 0;           // > 0: scores become softcap * tanh(scaled score / softcap) before the mask
  Mask mask;
  Lengths lengths;
  bool sinks = false;  // Arguments::sinks (query_heads), float32: a logit per head that joins the softmax's denominator
  // The backward pass: gradient of out, and those to be computed. Shapes as their tensors.
  TensorSpec grad_out, grad_query, grad_key, grad_value;
  // 8-bit attention. Forward: query and key e4m3 or int8, value e4m3, out bf16 (absent), fp16, or e4m3 times out_scale.
  // Quantising: query, key and value (each optional) fp16 or bf16, and the same in 8 bits. Absent scales and means are
  // contiguous, of the shapes that Granularity states; value_mean is float32 (batch, key_heads, value_dim).
  Quantization quantization;
  Rope rope;
  TensorSpec quantized_query, quantized_key, quantized_value;
  TensorSpec query_scale, key_scale, value_scale, value_mean;
  TensorSpec rope_cos, rope_sin;  // float32 (positions, rope.dims / 2)
  Options options;
};

/// What may change between runs. Each view must have the spec that the plan was made with (an absent spec in `out`,
/// `lse`, quantized tensors, scales and means takes the plan's); lengths are int32 and contiguous, as are amax and
/// out_scale.
struct Arguments {
  TensorView query, key, value, out, lse;
  TensorView cu_query, cu_key, used_query, used_key;
  TensorView sinks;
  TensorView grad_out, grad_query, grad_key, grad_value;
  TensorView quantized_query, quantized_key, quantized_value;
  TensorView query_scale, key_scale, value_scale, value_mean;
  TensorView query_amax, key_amax, value_amax;  // float32, shaped as the scales; for Quantization::amax
  TensorView out_scale;                         // float32 (1), for an e4m3 out: out = round(exact / out_scale)
  TensorView rope_cos, rope_sin, position;
};

// ---------------------------------------------------------------------------------------------- plan and run

namespace internal {
class Executable;
}

/// An immutable decision: which backend and variant, which schedule, how much workspace. Cheap to copy; any thread may
/// run it, at the same time too if each run brings a workspace of its own.
class TANDEM_EXPORT Plan {
 public:
  explicit Plan(std::shared_ptr<const internal::Executable> executable) noexcept;
  /// Bytes of workspace on the tensors' device, 256-byte aligned. Its content on entry doesn't matter. May be 0.
  size_t workspace_bytes() const noexcept;
  /// The backend that serves the plan; never automatic.
  Backend backend() const noexcept;
  /// How 8-bit tensors must be quantised for this plan: the problem's, with the rows of blocks filled in.
  Quantization quantization() const noexcept;
  /// Several lines of text for people: backend, variant, tile, schedule, grid, workspace, copies.
  std::string describe() const;
  /// Runs on `stream` (a cudaStream_t or CUstream; ignored on the CPU). Allocates nothing on the device and doesn't
  /// synchronise (unless Options::check_lengths), so it can be captured in a CUDA graph. On the CPU it returns when
  /// done.
  Status run(const Arguments& arguments, void* workspace = nullptr, size_t workspace_bytes = 0,
             void* stream = nullptr) const noexcept;

 private:
  std::shared_ptr<const internal::Executable> executable_;
};

TANDEM_EXPORT Result<Plan> plan(Pass pass, const Problem& problem) noexcept;

// ---------------------------------------------------------------------------------------------- what this build has

/// "0.1.0"
TANDEM_EXPORT const char* version() noexcept;

TANDEM_EXPORT const char* name(Dtype dtype) noexcept;
TANDEM_EXPORT const char* name(Backend backend) noexcept;
TANDEM_EXPORT const char* name(Code code) noexcept;

/// One compiled GPU kernel, as recorded when it was built; known without a GPU.
struct KernelInfo {
  const char* name;
  const char* pass;
  const char* dtype;
  int head_dim, value_dim;   // the largest that it serves
  int tile_query, tile_key;  // rows of a query tile and of a key tile
  int threads, registers;    // per block; per thread at launch
  int shared_bytes, local_bytes;
};
TANDEM_EXPORT size_t kernel_count() noexcept;
TANDEM_EXPORT const KernelInfo& kernel_info(size_t index) noexcept;

/// Whether a backend can run here and now; if not, the Status says why (no driver, no Hopper GPU, not built in).
TANDEM_EXPORT Status available(Backend backend) noexcept;

}  // namespace tandem

// The C ABI: translates structs and errors, and leaves every decision to the C++ interface.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <stdexcept>
#include <string_view>

#include "api/dlpack.hpp"
#include "common/status.hpp"
#include "tandem/tandem.h"

struct tandem_plan {
  tandem::Plan plan;
};

namespace tandem::internal {
namespace {

static_assert(TANDEM_INTERNAL == static_cast<int>(Code::internal) && TANDEM_DRIVER == static_cast<int>(Code::driver) &&
              TANDEM_OUT_OF_MEMORY == static_cast<int>(Code::out_of_memory) &&
              TANDEM_NO_DEVICE == static_cast<int>(Code::no_device) &&
              TANDEM_UNSUPPORTED == static_cast<int>(Code::unsupported) &&
              TANDEM_INVALID_ARGUMENT == static_cast<int>(Code::invalid_argument));
static_assert(TANDEM_FORWARD == static_cast<int>(Pass::forward) &&
              TANDEM_BACKWARD == static_cast<int>(Pass::backward) &&
              TANDEM_QUANTIZE == static_cast<int>(Pass::quantize) && TANDEM_APPEND == static_cast<int>(Pass::append) &&
              TANDEM_MERGE == static_cast<int>(Pass::merge));
static_assert(TANDEM_BACKEND_CPU == static_cast<int>(Backend::cpu) &&
              TANDEM_BACKEND_SM90 == static_cast<int>(Backend::sm90) &&
              TANDEM_BACKEND_EMULATOR == static_cast<int>(Backend::emulator));
static_assert(TANDEM_SCALE_TENSOR == static_cast<int>(Granularity::tensor) &&
              TANDEM_SCALE_HEAD == static_cast<int>(Granularity::head) &&
              TANDEM_SCALE_BLOCK == static_cast<int>(Granularity::block) &&
              TANDEM_VALUE_ROWS == static_cast<int>(ValueLayout::rows) &&
              TANDEM_VALUE_PACKED == static_cast<int>(ValueLayout::packed));
static_assert(sizeof(tandem_error::argument) == sizeof(Status::argument) &&
              sizeof(tandem_error::message) == sizeof(Status::message));

/// Field names change from C++'s "mask.left" to C's "mask_left", in the message too.
void spell_as_c(char* text) {
  for (const std::string_view prefix : {"mask.", "lengths.", "options.", "quantization.", "rope."}) {
    for (char* at = text; (at = std::strstr(at, prefix.data())) != nullptr; at += prefix.size()) {
      // A sentence may end in such a word: only a letter behind the dot makes it a field.
      if (at[prefix.size()] >= 'a' && at[prefix.size()] <= 'z') at[prefix.size() - 1] = '_';
    }
  }
}

int32_t report(const Status& status, tandem_error* error) {
  if (error != nullptr) {
    error->code = static_cast<int32_t>(status.code);
    std::memcpy(error->argument, status.argument, sizeof error->argument);
    std::memcpy(error->message, status.message, sizeof error->message);
    spell_as_c(error->argument);
    spell_as_c(error->message);
  }
  return static_cast<int32_t>(status.code);
}

/// Copies a caller's struct over `taken`, which holds the defaults. A smaller one leaves the fields that its program
/// doesn't know at their defaults; a larger one may only hold zeros where this library knows no field.
template <class Struct>
Status take_struct(const char* name, const Struct* given, Struct& taken) {
  if (given == nullptr) return error(Code::invalid_argument, name, "%s is null", name);
  const size_t size = given->struct_size;
  if (size < sizeof(size_t) || size > 1 << 16) {
    return error(Code::invalid_argument, name, "struct_size of %s is %zu; call tandem_%s_init with sizeof first", name,
                 size, name);
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (size_t i = sizeof(Struct); i < size; ++i) {
    if (bytes[i] == 0) continue;
    return error(Code::unsupported, name,
                 "%s uses a field that this library, version " TANDEM_VERSION ", doesn't know (byte %zu)", name, i);
  }
  std::memcpy(&taken, given, std::min(size, sizeof(Struct)));
  return {};
}

template <class Struct>
void write_defaults(Struct* target, size_t struct_size, const Struct& defaults) {
  if (target == nullptr || struct_size < sizeof(size_t)) return;
  std::memset(target, 0, struct_size);
  std::memcpy(target, &defaults, std::min(struct_size, sizeof(Struct)));
  target->struct_size = struct_size;
}

tandem_problem default_problem() {
  tandem_problem problem{};
  problem.struct_size = sizeof problem;
  problem.alignment = TensorSpec{}.alignment;
  problem.mask_left = problem.mask_right = -1;
  problem.lengths_batch = problem.lengths_max_query = problem.lengths_max_key = -1;
  problem.options_num_splits = 1;
  problem.options_executor_concurrency = 1;
  problem.options_emulator_seed = Options{}.emulator_seed;
  const Quantization quantization;
  problem.quantization_query = static_cast<int32_t>(quantization.query);
  problem.quantization_key = static_cast<int32_t>(quantization.key);
  problem.quantization_value = static_cast<int32_t>(quantization.value);
  problem.quantization_value_layout = static_cast<int32_t>(quantization.value_layout);
  problem.quantization_promote = quantization.promote ? 1 : 0;
  problem.quantization_sign_seed = quantization.sign_seed;
  return problem;
}

/// Lets C code run C++ tasks. A task that throws mustn't unwind through the caller's C frames.
struct TaskCall {
  const std::function<void(int64_t)>& task;
  std::atomic<bool> failed{false};

  static void run(void* context, int64_t index) {
    auto* call = static_cast<TaskCall*>(context);
    try {
      call->task(index);
    } catch (...) {
      call->failed = true;
    }
  }
};

std::shared_ptr<const Executor> executor_of(const tandem_problem& problem) {
  if (problem.options_executor == nullptr) return nullptr;
  Executor executor;
  executor.concurrency = problem.options_executor_concurrency;
  executor.parallel = [parallel = problem.options_executor, context = problem.options_executor_context](
                          int64_t count, const std::function<void(int64_t)>& task) {
    TaskCall call{task};
    parallel(context, count, TaskCall::run, &call);
    if (call.failed) throw std::runtime_error("a task failed on the caller's threads");
  };
  return std::make_shared<const Executor>(std::move(executor));
}

Status take_specs(const tandem_problem& given, Problem& problem) {
  const struct {
    const char* name;
    const DLTensor* tensor;
    TensorSpec& spec;
  } tensors[] = {
      {"query", given.query, problem.query},
      {"key", given.key, problem.key},
      {"value", given.value, problem.value},
      {"out", given.out, problem.out},
      {"lse", given.lse, problem.lse},
      {"grad_out", given.grad_out, problem.grad_out},
      {"grad_query", given.grad_query, problem.grad_query},
      {"grad_key", given.grad_key, problem.grad_key},
      {"grad_value", given.grad_value, problem.grad_value},
      {"quantized_query", given.quantized_query, problem.quantized_query},
      {"quantized_key", given.quantized_key, problem.quantized_key},
      {"quantized_value", given.quantized_value, problem.quantized_value},
      {"query_scale", given.query_scale, problem.query_scale},
      {"key_scale", given.key_scale, problem.key_scale},
      {"value_scale", given.value_scale, problem.value_scale},
      {"value_mean", given.value_mean, problem.value_mean},
      {"rope_cos", given.rope_cos, problem.rope_cos},
      {"rope_sin", given.rope_sin, problem.rope_sin},
  };
  for (const auto& tensor : tensors) {
    if (Status status = from_dlpack(tensor.name, tensor.tensor, tensor.spec); !status.ok()) return status;
    tensor.spec.alignment = given.alignment;
  }
  // `alignment` is a promise of the tensors that TMA reads; float32 beside them is taken one by one.
  for (TensorSpec* spec : {&problem.lse, &problem.query_scale, &problem.key_scale, &problem.value_scale,
                           &problem.value_mean, &problem.rope_cos, &problem.rope_sin})
    spec->alignment = sizeof(float);
  return {};
}

void take_quantization(const tandem_problem& given, Problem& problem) {
  Quantization& quantization = problem.quantization;
  quantization.query = static_cast<Granularity>(given.quantization_query);
  quantization.key = static_cast<Granularity>(given.quantization_key);
  quantization.value = static_cast<Granularity>(given.quantization_value);
  quantization.query_rows = given.quantization_query_rows;
  quantization.key_rows = given.quantization_key_rows;
  quantization.value_rows = given.quantization_value_rows;
  quantization.value_layout = static_cast<ValueLayout>(given.quantization_value_layout);
  quantization.value_mean = given.quantization_value_mean != 0;
  quantization.promote = given.quantization_promote != 0;
  quantization.hadamard = given.quantization_hadamard != 0;
  quantization.amax = given.quantization_amax != 0;
  quantization.known_mean = given.quantization_known_mean != 0;
  quantization.sign_seed = given.quantization_sign_seed;
  problem.rope = {given.rope_dims, given.rope_interleaved != 0, given.rope_positions != 0};
}

Status take_problem(const tandem_problem* pointer, Problem& problem) {
  tandem_problem given = default_problem();
  if (Status status = take_struct("problem", pointer, given); !status.ok()) return status;
  if (Status status = take_specs(given, problem); !status.ok()) return status;
  take_quantization(given, problem);
  if (given.has_scale != 0) problem.scale = given.scale;
  problem.softcap = given.softcap;
  problem.sinks = given.sinks != 0;
  problem.mask.causal = given.mask_causal != 0;
  problem.mask.left = given.mask_left;
  problem.mask.right = given.mask_right;
  if (given.mask_has_diagonal != 0) problem.mask.diagonal = given.mask_diagonal;
  Lengths& lengths = problem.lengths;
  lengths.batch = given.lengths_batch;
  lengths.max_query = given.lengths_max_query;
  lengths.max_key = given.lengths_max_key;
  lengths.packed_query = given.lengths_packed_query != 0;
  lengths.packed_key = given.lengths_packed_key != 0;
  lengths.used_query = given.lengths_used_query != 0;
  lengths.used_key = given.lengths_used_key != 0;
  Options& options = problem.options;
  options.backend = static_cast<Backend>(given.options_backend);
  options.num_splits = given.options_num_splits;
  options.deterministic = given.options_deterministic != 0;
  options.batch_invariant = given.options_batch_invariant != 0;
  options.check_lengths = given.options_check_lengths != 0;
  options.threads = given.options_threads;
  options.executor = executor_of(given);
  options.emulator_seed = given.options_emulator_seed;
  return {};
}

Status take_arguments(const tandem_arguments* pointer, Arguments& arguments) {
  tandem_arguments given{};
  if (Status status = take_struct("arguments", pointer, given); !status.ok()) return status;
  const struct {
    const char* name;
    const DLTensor* tensor;
    TensorView& view;
  } tensors[] = {
      {"query", given.query, arguments.query},
      {"key", given.key, arguments.key},
      {"value", given.value, arguments.value},
      {"out", given.out, arguments.out},
      {"lse", given.lse, arguments.lse},
      {"cu_query", given.cu_query, arguments.cu_query},
      {"cu_key", given.cu_key, arguments.cu_key},
      {"used_query", given.used_query, arguments.used_query},
      {"used_key", given.used_key, arguments.used_key},
      {"sinks", given.sinks, arguments.sinks},
      {"grad_out", given.grad_out, arguments.grad_out},
      {"grad_query", given.grad_query, arguments.grad_query},
      {"grad_key", given.grad_key, arguments.grad_key},
      {"grad_value", given.grad_value, arguments.grad_value},
      {"quantized_query", given.quantized_query, arguments.quantized_query},
      {"quantized_key", given.quantized_key, arguments.quantized_key},
      {"quantized_value", given.quantized_value, arguments.quantized_value},
      {"query_scale", given.query_scale, arguments.query_scale},
      {"key_scale", given.key_scale, arguments.key_scale},
      {"value_scale", given.value_scale, arguments.value_scale},
      {"value_mean", given.value_mean, arguments.value_mean},
      {"query_amax", given.query_amax, arguments.query_amax},
      {"key_amax", given.key_amax, arguments.key_amax},
      {"value_amax", given.value_amax, arguments.value_amax},
      {"out_scale", given.out_scale, arguments.out_scale},
      {"rope_cos", given.rope_cos, arguments.rope_cos},
      {"rope_sin", given.rope_sin, arguments.rope_sin},
      {"position", given.position, arguments.position},
  };
  for (const auto& tensor : tensors) {
    if (Status status = from_dlpack(tensor.name, tensor.tensor, tensor.view); !status.ok()) return status;
  }
  return {};
}

tandem_kernel kernel_of(const KernelInfo& info) {
  tandem_kernel kernel{};
  kernel.name = info.name;
  kernel.pass = info.pass;
  kernel.dtype = info.dtype;
  kernel.head_dim = info.head_dim;
  kernel.value_dim = info.value_dim;
  kernel.tile_query = info.tile_query;
  kernel.tile_key = info.tile_key;
  kernel.threads = info.threads;
  kernel.registers = info.registers;
  kernel.shared_bytes = info.shared_bytes;
  kernel.local_bytes = info.local_bytes;
  return kernel;
}

}  // namespace
}  // namespace tandem::internal

using tandem::Code;
using tandem::Status;
using namespace tandem::internal;  // NOLINT(google-build-using-namespace): this file is the border to C

extern "C" {

const char* tandem_version(void) { return tandem::version(); }

const char* tandem_code_name(int32_t code) { return tandem::name(static_cast<Code>(code)); }

const char* tandem_backend_name(int32_t backend) { return tandem::name(static_cast<tandem::Backend>(backend)); }

int32_t tandem_available(int32_t backend, tandem_error* error) {
  return report(tandem::available(static_cast<tandem::Backend>(backend)), error);
}

void tandem_problem_init(tandem_problem* problem, size_t struct_size) {
  write_defaults(problem, struct_size, default_problem());
}

void tandem_arguments_init(tandem_arguments* arguments, size_t struct_size) {
  write_defaults(arguments, struct_size, tandem_arguments{});
}

int32_t tandem_plan_create(int32_t pass, const tandem_problem* problem, tandem_plan** plan, tandem_error* error) {
  if (plan != nullptr) *plan = nullptr;
  const Status status = guarded([&]() -> Status {
    if (plan == nullptr) return tandem::internal::error(Code::invalid_argument, "plan", "plan is null");
    tandem::Problem taken;
    if (Status fault = take_problem(problem, taken); !fault.ok()) return fault;
    tandem::Result<tandem::Plan> made = tandem::plan(static_cast<tandem::Pass>(pass), taken);
    if (made) *plan = new tandem_plan{std::move(*made)};
    return made.status();
  });
  return report(status, error);
}

void tandem_plan_destroy(tandem_plan* plan) { delete plan; }

size_t tandem_plan_workspace_bytes(const tandem_plan* plan) {
  return plan == nullptr ? 0 : plan->plan.workspace_bytes();
}

int32_t tandem_plan_backend(const tandem_plan* plan) {
  return plan == nullptr ? TANDEM_BACKEND_AUTOMATIC : static_cast<int32_t>(plan->plan.backend());
}

void tandem_plan_block_rows(const tandem_plan* plan, int32_t* query_rows, int32_t* key_rows, int32_t* value_rows) {
  const tandem::Quantization chosen = plan == nullptr ? tandem::Quantization{} : plan->plan.quantization();
  if (query_rows != nullptr) *query_rows = chosen.query_rows;
  if (key_rows != nullptr) *key_rows = chosen.key_rows;
  if (value_rows != nullptr) *value_rows = chosen.value_rows;
}

size_t tandem_plan_describe(const tandem_plan* plan, char* buffer, size_t bytes) {
  size_t length = 0;
  if (buffer != nullptr && bytes > 0) buffer[0] = '\0';
  if (plan == nullptr) return 0;
  const Status status = guarded([&]() -> Status {
    const std::string text = plan->plan.describe();
    length = text.size();
    if (buffer != nullptr && bytes > 0) buffer[text.copy(buffer, bytes - 1)] = '\0';
    return {};
  });
  return status.ok() ? length : 0;
}

int32_t tandem_plan_run(const tandem_plan* plan, const tandem_arguments* arguments, void* workspace,
                        size_t workspace_bytes, void* stream, tandem_error* error) {
  const Status status = guarded([&]() -> Status {
    if (plan == nullptr) return tandem::internal::error(Code::invalid_argument, "plan", "plan is null");
    tandem::Arguments taken;
    if (Status fault = take_arguments(arguments, taken); !fault.ok()) return fault;
    return plan->plan.run(taken, workspace, workspace_bytes, stream);
  });
  return report(status, error);
}

size_t tandem_kernel_count(void) { return tandem::kernel_count(); }

int32_t tandem_kernel_info(size_t index, tandem_kernel* kernel, tandem_error* error) {
  const Status status = guarded([&]() -> Status {
    if (kernel == nullptr || kernel->struct_size < sizeof(size_t)) {
      return tandem::internal::error(Code::invalid_argument, "kernel", "kernel is null, or its struct_size isn't set");
    }
    if (index >= tandem::kernel_count()) {
      return tandem::internal::error(Code::invalid_argument, "index", "index is %zu; this build holds %zu kernels",
                                     index, tandem::kernel_count());
    }
    write_defaults(kernel, kernel->struct_size, kernel_of(tandem::kernel_info(index)));
    return {};
  });
  return report(status, error);
}

}  // extern "C"

// The emulator as a backend: the Hopper backend's plans and launch code on a Device that runs the kernels' own source
// on the CPU. A finding of its checks makes run() fail with the first report.
#include <cstring>
#include <fstream>
#include <vector>

#include "backends/backends.hpp"
#include "backends/emulator/loader.hpp"
#include "backends/emulator/trace.hpp"
#include "backends/sm90/backward/launch.hpp"
#include "backends/sm90/device.hpp"
#include "backends/sm90/forward/launch.hpp"
#include "backends/sm90/forward_fp8/launch.hpp"
#include "backends/sm90/quantize/launch.hpp"
#include "common/status.hpp"
#include "plan/scales.hpp"

namespace tandem::internal::emulator {

namespace {

using tandem::emulator::Buffer;
using tandem::emulator::LaunchResult;
using tandem::emulator::TensorMapRequest;
using tandem::emulator::TraceEvent;

/// Launches of one host thread: the memory that they may touch.
thread_local const std::vector<Buffer>* launch_buffers = nullptr;

class EmulatedDevice final : public sm90::Device {
 public:
  EmulatedDevice(const Interface& interface, uint64_t seed, Settings settings)
      : interface_(interface), seed_(seed), settings_(std::move(settings)) {}

  sm90::DeviceTraits traits() const noexcept override { return {.multiprocessors = settings_.sms}; }

  Result<sm90::KernelHandle> load(const char* name, const void*, int shared_bytes) noexcept override {
    const Kernel* kernel = find_kernel(interface_, name);
    if (kernel == nullptr)
      return error(Code::unsupported, "options.backend", "the emulated library holds no kernel %s", name);
    if (kernel->shared_bytes != static_cast<size_t>(shared_bytes))
      return error(Code::internal, "", "%s has %zu bytes of shared memory, planned are %d", name, kernel->shared_bytes,
                   shared_bytes);
    return const_cast<Kernel*>(kernel);
  }

  Status encode(const sm90::TensorMapSpec& spec, ptx::TensorMap& map) const noexcept override {
    TensorMapRequest request;
    request.element = spec.dtype;
    request.rank = spec.rank;
    request.base = spec.base;
    std::memcpy(request.size, spec.size, sizeof request.size);
    std::memcpy(request.stride, spec.stride_bytes, sizeof request.stride);
    std::memcpy(request.box, spec.box, sizeof request.box);
    request.swizzle = static_cast<int>(spec.swizzle);
    char message[200] = "";
    if (!interface_.encode(request, &map, message, sizeof message)) return error(Code::internal, "", "%s", message);
    return {};
  }

  Status clear(void* data, size_t bytes, void*) const noexcept override {
    std::memset(data, 0, bytes);
    return {};
  }
  Status copy_to_host(void* destination, const void* source, size_t bytes, void*) const noexcept override {
    std::memcpy(destination, source, bytes);
    return {};
  }

  Status launch(const sm90::Launch& launch) const noexcept override {
    return guarded([&]() -> Status {
      const auto& kernel = *static_cast<const Kernel*>(launch.kernel);
      if (kernel.parameter_bytes != launch.parameter_bytes)
        return error(Code::internal, "", "%s takes %zu bytes of parameters, not %zu", kernel.name,
                     kernel.parameter_bytes, launch.parameter_bytes);
      Log log;
      LaunchOptions options;
      options.seed = seed_;
      options.delay = settings_.delay;
      options.preempt = settings_.preempt;
      options.sms = settings_.sms;
      options.host_threads = settings_.host_threads;
      options.races = settings_.races;
      options.timing = !settings_.trace_file.empty() && kernel.shared_bytes != 0;
      if (launch_buffers != nullptr) {
        options.buffers = launch_buffers->data();
        options.buffer_count = launch_buffers->size();
      }
      options.report = [](void* context, const char* text) { static_cast<Log*>(context)->reports.emplace_back(text); };
      options.event = [](void* context, const TraceEvent& event) { static_cast<Log*>(context)->trace.add(event); };
      options.context = &log;
      const LaunchResult result = interface_.launch(
          kernel, launch.grid, launch.threads, static_cast<size_t>(launch.shared_bytes), launch.parameters, options);
      if (options.timing && !log.trace.write(settings_.trace_file))
        return error(Code::invalid_argument, "TANDEM_EMULATOR_TRACE", "can't write %s", settings_.trace_file.c_str());
      if (result.findings == 0) return {};
      append_reports(log.reports);
      return error(Code::internal, "", "the emulator found %d faults in %s. %s", result.findings, kernel.name,
                   log.reports.empty() ? "" : log.reports.front().c_str());
    });
  }

 private:
  struct Log {
    std::vector<std::string> reports;
    Trace trace;
  };

  void append_reports(const std::vector<std::string>& reports) const {
    if (settings_.report_file.empty()) return;
    std::ofstream file(settings_.report_file, std::ios::app);
    for (const std::string& report : reports) file << report << '\n';
  }

  const Interface& interface_;
  const uint64_t seed_;
  const Settings settings_;
};

/// Bytes from a tensor's first to behind its last element.
size_t extent(const TensorSpec& spec) {
  int64_t last = 0;
  for (int i = 0; i < spec.rank; ++i) {
    if (spec.size[static_cast<size_t>(i)] == 0) return 0;
    last += (spec.size[static_cast<size_t>(i)] - 1) * spec.stride[static_cast<size_t>(i)];
  }
  const int64_t bytes = spec.dtype == Dtype::fp32 || spec.dtype == Dtype::int32  ? 4
                        : spec.dtype == Dtype::int64                             ? 8
                        : spec.dtype == Dtype::e4m3 || spec.dtype == Dtype::int8 ? 1
                                                                                 : 2;
  return static_cast<size_t>((last + 1) * bytes);
}

/// What 8-bit attention adds: scales and means, which the quantiser writes and the forward reads, and what the
/// quantiser alone takes.
template <class Add>
void add_quantised(const Attention& a, const Arguments& arguments, const Add& add) {
  const bool writes = a.pass == Pass::quantize;
  const struct {
    const char* name;
    const TensorView& view;
    const TensorSpec& spec;
    bool writable;
  } list[] = {{"quantized_query", arguments.quantized_query, a.quantized_query, true},
              {"quantized_key", arguments.quantized_key, a.quantized_key, true},
              {"quantized_value", arguments.quantized_value, a.quantized_value, true},
              {"query_scale", arguments.query_scale, a.query_scale, writes},
              {"key_scale", arguments.key_scale, a.key_scale, writes},
              {"value_scale", arguments.value_scale, a.value_scale, writes},
              {"value_mean", arguments.value_mean, a.value_mean, writes},
              {"query_amax", arguments.query_amax, arguments.query_amax.spec, false},
              {"key_amax", arguments.key_amax, arguments.key_amax.spec, false},
              {"value_amax", arguments.value_amax, arguments.value_amax.spec, false},
              {"rope_cos", arguments.rope_cos, a.rope_cos, false},
              {"rope_sin", arguments.rope_sin, a.rope_sin, false},
              {"position", arguments.position, arguments.position.spec, false},
              {"out_scale", arguments.out_scale, arguments.out_scale.spec, false}};
  for (const auto& tensor : list)
    if (tensor.spec.present()) add(tensor.name, tensor.view.data, extent(tensor.spec), tensor.writable);
}

/// Tells the emulator, around each run, which memory the kernels may touch.
class EmulatedExecutable final : public Executable {
 public:
  explicit EmulatedExecutable(std::shared_ptr<const Executable> hopper)
      : Executable(hopper->attention()), hopper_(std::move(hopper)) {}

  size_t workspace_bytes() const noexcept override { return hopper_->workspace_bytes(); }
  std::string describe() const override { return hopper_->describe(); }
  Quantization quantization() const noexcept override { return hopper_->quantization(); }
  Status copy_to_host(void* destination, const void* source, size_t bytes, void*) const noexcept override {
    std::memcpy(destination, source, bytes);
    return {};
  }

  Status run(const Arguments& arguments, void* workspace, void* stream) const noexcept override {
    return guarded([&]() -> Status {
      const Attention& a = attention();
      std::vector<Buffer> buffers;
      const auto add = [&](const char* name, const void* data, size_t bytes, bool writable) {
        if (data != nullptr && bytes > 0) buffers.push_back({name, data, bytes, writable});
      };
      const auto batch = static_cast<size_t>(a.batch);
      add("query", arguments.query.data, extent(a.query), false);
      add("key", arguments.key.data, extent(a.key), false);
      add("value", arguments.value.data, extent(a.value), false);
      add("out", arguments.out.data, extent(a.out), a.pass == Pass::forward);
      if (a.lse.present()) add("lse", arguments.lse.data, extent(a.lse), a.pass == Pass::forward);
      if (a.packed_query) add("cu_query", arguments.cu_query.data, (batch + 1) * sizeof(int32_t), false);
      if (a.packed_key) add("cu_key", arguments.cu_key.data, (batch + 1) * sizeof(int32_t), false);
      if (a.used_query) add("used_query", arguments.used_query.data, batch * sizeof(int32_t), false);
      if (a.used_key) add("used_key", arguments.used_key.data, batch * sizeof(int32_t), false);
      if (a.sinks) add("sinks", arguments.sinks.data, static_cast<size_t>(a.query_heads) * sizeof(float), false);
      if (a.grad_out.present()) add("grad_out", arguments.grad_out.data, extent(a.grad_out), false);
      if (a.grad_query.present()) add("grad_query", arguments.grad_query.data, extent(a.grad_query), true);
      if (a.grad_key.present()) add("grad_key", arguments.grad_key.data, extent(a.grad_key), true);
      if (a.grad_value.present()) add("grad_value", arguments.grad_value.data, extent(a.grad_value), true);
      add_quantised(a, arguments, add);
      add("workspace", workspace, workspace_bytes(), true);
      launch_buffers = &buffers;
      const Status status = hopper_->run(arguments, workspace, stream);
      launch_buffers = nullptr;
      return status;
    });
  }

 private:
  std::shared_ptr<const Executable> hopper_;
};

ExecutableResult prepare_on(const Attention& attention, std::shared_ptr<sm90::Device> device) {
  if (attention.pass == Pass::quantize) return sm90::quantize::prepare(attention, std::move(device));
  if (attention.pass == Pass::backward) return sm90::backward::prepare(attention, std::move(device));
  if (eight_bits(attention.dtype)) return sm90::forward_fp8::prepare(attention, std::move(device));
  return sm90::forward::prepare(attention, std::move(device));
}

}  // namespace

Status available() noexcept { return load().status(); }

ExecutableResult prepare(const Attention& attention) noexcept {
  if (attention.pass == Pass::append || attention.pass == Pass::merge)
    return error(Code::unsupported, "pass", "the emulator serves the passes forward, backward and quantize");
  return guarded([&]() -> ExecutableResult {
    const Result<const Interface*> interface = load();
    if (!interface) return interface.status();
    const Result<Settings> chosen = settings();
    if (!chosen) return chosen.status();
    auto device = std::make_shared<EmulatedDevice>(**interface, attention.options.emulator_seed, *chosen);
    ExecutableResult hopper = prepare_on(attention, std::move(device));
    if (!hopper) return hopper.status();
    return std::shared_ptr<const Executable>(std::make_shared<EmulatedExecutable>(std::move(*hopper)));
  });
}

}  // namespace tandem::internal::emulator

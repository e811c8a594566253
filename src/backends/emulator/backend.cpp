// The emulator as a backend: the Hopper backend's plans and launch code on a Device that runs the kernels' own source
// on the CPU. A finding of its checks makes run() fail with the first report.
#include <algorithm>
#include <cstring>
#include <deque>
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
#include "common/emulator_records.hpp"
#include "common/status.hpp"
#include "plan/scales.hpp"
#include "plan/spec.hpp"

namespace tandem::internal::emulator {

namespace {

using tandem::emulator::Buffer;
using tandem::emulator::LaunchResult;
using tandem::emulator::TensorMapRequest;
using tandem::emulator::TraceEvent;

/// The memory that the launches of a run may touch. What a run may write holds anything when it begins.
class Buffers {
 public:
  void add(const char* name, const TensorView& view, const TensorSpec& spec, bool writable) {
    if (!spec.present() || view.data == nullptr) return;
    Buffer buffer{name, view.data, 0, writable};
    buffer.rank = spec.rank;
    buffer.element_bytes = static_cast<size_t>(element_bytes(spec.dtype));
    size_t last = 0;
    for (int i = 0; i < spec.rank; ++i) {
      const auto at = static_cast<size_t>(i);
      if (spec.size[at] == 0) return;
      buffer.size[i] = static_cast<uint64_t>(spec.size[at]);
      buffer.stride[i] = static_cast<uint64_t>(spec.stride[at]) * buffer.element_bytes;
      last += (buffer.size[i] - 1) * buffer.stride[i];
    }
    buffer.bytes = last + buffer.element_bytes;
    add(buffer);
  }
  void add(Buffer buffer) {
    if (buffer.data == nullptr || buffer.bytes == 0) return;
    if (buffer.writable) buffer.written = written_.emplace_back(buffer.bytes).data();
    list_.push_back(buffer);
  }
  /// The host wrote this.
  void mark_written(const void* data, size_t bytes) const {
    for (const Buffer& buffer : list_) {
      const auto offset =
          static_cast<size_t>(static_cast<const uint8_t*>(data) - static_cast<const uint8_t*>(buffer.data));
      if (buffer.written != nullptr && offset < buffer.bytes)
        std::fill_n(buffer.written + offset, std::min(bytes, buffer.bytes - offset), uint8_t{1});
    }
  }
  const std::vector<Buffer>& list() const { return list_; }

 private:
  std::vector<Buffer> list_;
  std::deque<std::vector<uint8_t>> written_;
};

/// Of the run that this host thread is in.
thread_local const Buffers* run_buffers = nullptr;

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
    if (run_buffers != nullptr) run_buffers->mark_written(data, bytes);
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
      Log log{{}, Trace(kernel.name)};
      LaunchOptions options;
      options.seed = seed_;
      options.delay = settings_.delay;
      options.preempt = settings_.preempt;
      options.sms = settings_.sms;
      options.host_threads = settings_.host_threads;
      options.races = settings_.races;
      options.timing = (emulator_records.wants_trace || !settings_.trace_file.empty()) && kernel.shared_bytes != 0;
      if (run_buffers != nullptr) {
        options.buffers = run_buffers->list().data();
        options.buffer_count = run_buffers->list().size();
      }
      options.report = [](void* context, const char* text) { static_cast<Log*>(context)->reports.emplace_back(text); };
      options.event = [](void* context, const TraceEvent& event) { static_cast<Log*>(context)->trace.add(event); };
      options.context = &log;
      const LaunchResult result = interface_.launch(
          kernel, launch.grid, launch.threads, static_cast<size_t>(launch.shared_bytes), launch.parameters, options);
      if (options.timing)
        if (const Status status = keep(log.trace); !status.ok()) return status;
      if (result.findings == 0) return {};
      if (const Status status = keep(log.reports); !status.ok()) return status;
      return error(Code::internal, "", "the emulator found %d faults in %s. %s", result.findings, kernel.name,
                   log.reports.empty() ? "" : log.reports.front().c_str());
    });
  }

 private:
  struct Log {
    std::vector<std::string> reports;
    Trace trace;
  };

  Status keep(const Trace& trace) const {
    const std::string text = trace.text();
    if (emulator_records.wants_trace) emulator_records.trace = text;
    if (settings_.trace_file.empty() || (std::ofstream(settings_.trace_file) << text).flush()) return {};
    return error(Code::invalid_argument, "TANDEM_EMULATOR_TRACE", "can't write %s", settings_.trace_file.c_str());
  }
  Status keep(const std::vector<std::string>& reports) const {
    emulator_records.reports.insert(emulator_records.reports.end(), reports.begin(), reports.end());
    if (settings_.report_file.empty()) return {};
    std::ofstream file(settings_.report_file, std::ios::app);
    for (const std::string& report : reports) file << report << '\n';
    if (file.flush()) return {};
    return error(Code::invalid_argument, "TANDEM_EMULATOR_REPORT", "can't write %s", settings_.report_file.c_str());
  }

  const Interface& interface_;
  const uint64_t seed_;
  const Settings settings_;
};

/// What 8-bit attention adds: scales and means, which the quantiser writes and the forward reads, and what the
/// quantiser alone takes.
void add_quantised(Buffers& buffers, const Attention& a, const Arguments& arguments) {
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
              {"value_mean", arguments.value_mean, a.value_mean, writes && !a.quantization.known_mean},
              {"query_amax", arguments.query_amax, arguments.query_amax.spec, false},
              {"key_amax", arguments.key_amax, arguments.key_amax.spec, false},
              {"value_amax", arguments.value_amax, arguments.value_amax.spec, false},
              {"rope_cos", arguments.rope_cos, a.rope_cos, false},
              {"rope_sin", arguments.rope_sin, a.rope_sin, false},
              {"position", arguments.position, arguments.position.spec, false},
              {"out_scale", arguments.out_scale, arguments.out_scale.spec, false}};
  for (const auto& tensor : list) buffers.add(tensor.name, tensor.view, tensor.spec, tensor.writable);
}

Buffers buffers_of(const Attention& a, const Arguments& arguments) {
  Buffers buffers;
  const bool forward = a.pass == Pass::forward;
  buffers.add("query", arguments.query, a.query, false);
  buffers.add("key", arguments.key, a.key, false);
  buffers.add("value", arguments.value, a.value, false);
  buffers.add("out", arguments.out, a.out, forward);
  buffers.add("lse", arguments.lse, a.lse, forward);
  buffers.add("grad_out", arguments.grad_out, a.grad_out, false);
  buffers.add("grad_query", arguments.grad_query, a.grad_query, true);
  buffers.add("grad_key", arguments.grad_key, a.grad_key, true);
  buffers.add("grad_value", arguments.grad_value, a.grad_value, true);
  const auto batch = static_cast<size_t>(a.batch);
  if (a.packed_query) buffers.add({"cu_query", arguments.cu_query.data, (batch + 1) * sizeof(int32_t), false});
  if (a.packed_key) buffers.add({"cu_key", arguments.cu_key.data, (batch + 1) * sizeof(int32_t), false});
  if (a.used_query) buffers.add({"used_query", arguments.used_query.data, batch * sizeof(int32_t), false});
  if (a.used_key) buffers.add({"used_key", arguments.used_key.data, batch * sizeof(int32_t), false});
  if (a.sinks) buffers.add({"sinks", arguments.sinks.data, static_cast<size_t>(a.query_heads) * sizeof(float), false});
  add_quantised(buffers, a, arguments);
  return buffers;
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
      Buffers buffers = buffers_of(attention(), arguments);
      buffers.add({"workspace", workspace, workspace_bytes(), true});
      emulator_records.reports.clear();
      run_buffers = &buffers;
      const Status status = hopper_->run(arguments, workspace, stream);
      run_buffers = nullptr;
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
    const std::string& report_file = chosen->report_file;
    if (!report_file.empty() && !std::ofstream(report_file, std::ios::app))
      return error(Code::invalid_argument, "TANDEM_EMULATOR_REPORT", "can't write %s", report_file.c_str());
    auto device = std::make_shared<EmulatedDevice>(**interface, attention.options.emulator_seed, *chosen);
    ExecutableResult hopper = prepare_on(attention, std::move(device));
    if (!hopper) return hopper.status();
    return std::shared_ptr<const Executable>(std::make_shared<EmulatedExecutable>(std::move(*hopper)));
  });
}

}  // namespace tandem::internal::emulator

// Streams, graphs and devices: everything that a run enqueues belongs to the caller's stream and to the tensors'
// device. (Names: see values_test.cpp.)
#include <stdexcept>
#include <string_view>

#include "gpu/driver.hpp"
#include "gpu/support.hpp"
#include "tools/quantized.hpp"

namespace tandem::testing {
namespace {

constexpr uint32_t not_a_number = 0xffffffff;  // in every dtype

/// The tensors of a job on the GPU and a plan for them, all in the open.
class Placed {
 public:
  Placed(const Job& job, Plan plan, tools::Memory& memory) : plan_(std::move(plan)) {
    for (const tools::Role& role : tools::roles()) {
      const Tensor& tensor = job.*role.tensor;
      if (!tensor.present() || !role.used(job.pass)) continue;
      tools::Buffer buffer(memory, tensor.bytes.size());
      memory.upload(buffer.data(), tensor.bytes.data(), tensor.bytes.size());
      arguments.*role.view = tensor.view(buffer.data());
      (arguments.*role.view).spec.device = memory.device();
      buffers_.push_back(std::move(buffer));
    }
    workspace_ = tools::Buffer(memory, plan_.workspace_bytes());
    fill_async(workspace_.data(), not_a_number, workspace_.bytes(), memory.stream());
    memory.synchronize();
  }
  Status run(void* stream) const { return plan_.run(arguments, workspace_.data(), workspace_.bytes(), stream); }

  Arguments arguments;

 private:
  Plan plan_;
  std::vector<tools::Buffer> buffers_;
  tools::Buffer workspace_;
};

/// Bytes of a contiguous tensor's elements.
size_t bytes_of(const Tensor& tensor) { return tools::array_of(tensor).bytes.size(); }

/// Work of every kind: a counter that is cleared, more tiles than blocks, a copy of a misaligned tensor in front.
Job busy_job(uint64_t seed) {
  Job job = make_job({.batch = 2,
                      .queries = 1000,
                      .keys = 1000,
                      .query_heads = 16,
                      .key_heads = 4,
                      .head_dim = 64,
                      .mask = causal_mask(),
                      .seed = seed});
  job.key =
      view_of(quick_array({2 * 1000 * 4 * 64 + 8}, Dtype::bf16, seed), {2, 1000, 4, 64}, {1000 * 256, 256, 64, 1}, 3);
  return job;
}

class GpuStream : public GpuOnly {
 protected:
  Plan planned(const Job& job, const Options& options = {}) const {
    auto result = plan_of(job, options);
    if (!result.ok()) throw std::runtime_error(result.status().message);
    return *result;
  }
  Bytes download(const void* data, size_t bytes) const {
    Bytes result(bytes);
    memory_->download(result.data(), data, bytes);
    return result;
  }
};

/// The backward of a finished forward job of heads 16 and 4, head dim 64.
Job backward_of(const Job& forward, uint64_t seed) {
  Job job = forward;
  job.pass = Pass::backward;
  job.grad_out = tools::tensor_of(quick_array({2, 1000, 16, 64}, Dtype::bf16, seed));
  job.grad_query = tools::poisoned(Dtype::bf16, {2, 1000, 16, 64});
  job.grad_key = job.grad_value = tools::poisoned(Dtype::bf16, {2, 1000, 4, 64});
  return job;
}

Options deterministic() {
  Options options;
  options.deterministic = true;
  return options;
}

class GpuStreamOrder : public GpuStream {
 protected:
  /// 50 times: an input becomes right only after a while on the stream, and wrong again once the result has been copied
  /// away, so that a launch on another stream, or one that doesn't wait, would show.
  void expect_order(const Job& job, const Options& options, const tools::Role& input, const tools::Role& output) {
    Job expected = job;
    run(expected, options);
    if (HasFatalFailure()) return;
    const Bytes right = tools::array_of(expected.*output.tensor).bytes;
    const Placed placed(job, planned(job, options), *memory_);
    void* in = (placed.arguments.*input.view).data;
    void* out = (placed.arguments.*output.view).data;
    const size_t in_bytes = bytes_of(job.*input.tensor), out_bytes = right.size();
    const tools::Buffer kept(*memory_, in_bytes), result(*memory_, out_bytes), idle(*memory_, 256 << 20);
    const Stream stream;
    copy_async(kept.data(), in, in_bytes, stream.get());
    for (int i = 0; i < 50; ++i) {
      fill_async(in, not_a_number, in_bytes, stream.get());
      fill_async(out, not_a_number, out_bytes, stream.get());
      for (int slow = 0; slow < 4; ++slow) fill_async(idle.data(), 0, idle.bytes(), stream.get());
      copy_async(in, kept.data(), in_bytes, stream.get());
      const Status status = placed.run(stream.get());
      ASSERT_TRUE(status.ok()) << status.message;
      copy_async(result.data(), out, out_bytes, stream.get());
      fill_async(in, not_a_number, in_bytes, stream.get());
      if (i % 10 != 9) continue;  // mostly without any wait in between
      synchronize(stream.get());
      ASSERT_EQ(download(result.data(), out_bytes), right) << "repeat " << i;
    }
  }
  static const tools::Role& role(const char* name) {
    for (const tools::Role& role : tools::roles())
      if (std::string_view(role.name) == name) return role;
    throw std::runtime_error(name);
  }
};

TEST_F(GpuStreamOrder, N2_Forward) { expect_order(busy_job(1), {}, role("query"), role("out")); }

TEST_F(GpuStreamOrder, N2_ForwardWithTheCopiedTensorLate) {
  Job job = busy_job(1);
  job.query = view_of(quick_array({2 * 1000 * 16 * 64 + 8}, Dtype::bf16, 6), {2, 1000, 16, 64},
                      {1000 * 1024, 1024, 64, 1}, 2);  // 4-byte aligned: copied, but filled by whole words
  expect_order(job, {}, role("query"), role("out"));
}

TEST_F(GpuStreamOrder, N2_Backward) {
  Job forward = busy_job(1);
  run(forward);
  const Job job = backward_of(forward, 4);
  if (const auto plan = plan_of(job, deterministic()); !plan.ok()) GTEST_SKIP() << plan.status().message;
  expect_order(job, deterministic(), role("grad_out"), role("grad_query"));
  expect_order(job, deterministic(), role("query"), role("grad_key"));
}

TEST_F(GpuStream, N5_TwoStreamsWithAWorkspaceEach) {
  const Job jobs[2] = {busy_job(1), busy_job(2)};
  Bytes right[2];
  std::vector<std::unique_ptr<Placed>> placed;
  for (size_t i = 0; i < 2; ++i) {
    Job serial = jobs[i];
    run(serial);
    expect_right(serial);
    right[i] = tools::array_of(serial.out).bytes;
    placed.push_back(std::make_unique<Placed>(jobs[i], planned(jobs[0]), *memory_));
  }
  const Stream streams[2];
  for (int call = 0; call < 100; ++call) {
    const auto i = static_cast<size_t>(call % 2);
    if (call % 20 < 2) fill_async(placed[i]->arguments.out.data, not_a_number, right[i].size(), streams[i].get());
    const Status status = placed[i]->run(streams[i].get());
    ASSERT_TRUE(status.ok()) << status.message;
  }
  for (size_t i = 0; i < 2; ++i) {
    synchronize(streams[i].get());
    EXPECT_EQ(download(placed[i]->arguments.out.data, right[i].size()), right[i]) << "stream " << i;
  }
}

/// Plans and captures before anything of it has run, as an engine does.
TEST_F(GpuStream, N6_GraphReplayedWithOtherLengths) {
  const Shape shape{.batch = 3,
                    .queries = 70,
                    .keys = 4096,
                    .query_heads = 8,
                    .key_heads = 2,
                    .mask = causal_mask(),
                    .used_key = {4096, 4096, 4096}};
  const Job job = make_job(shape);
  const Placed placed(job, planned(job), *memory_);
  const Stream stream;
  Graph graph(stream.get(), [&] {
    const Status status = placed.run(stream.get());
    EXPECT_TRUE(status.ok()) << status.message;
  });
  for (const std::vector<int32_t>& used :
       std::vector<std::vector<int32_t>>{{4096, 4096, 4096}, {10, 4000, 1}, {0, 71, 2048}, {4096, 4096, 4096}}) {
    Job eager = job;
    eager.used_key = int32_tensor(used);
    run(eager);
    expect_right(eager);
    memory_->upload(placed.arguments.used_key.data, used.data(), used.size() * sizeof(int32_t));
    fill_async(placed.arguments.out.data, 0, bytes_of(job.out), stream.get());
    fill_async(placed.arguments.lse.data, 0, bytes_of(job.lse), stream.get());
    graph.launch(stream.get());
    synchronize(stream.get());
    EXPECT_EQ(download(placed.arguments.out.data, bytes_of(job.out)), tools::array_of(eager.out).bytes);
    EXPECT_EQ(download(placed.arguments.lse.data, bytes_of(job.lse)), tools::array_of(eager.lse).bytes);
  }
}

TEST_F(GpuStream, N6_GraphOfCopiesAndACounter) {
  const Job job = busy_job(3);
  Job eager = job;
  run(eager);
  const Placed placed(job, planned(job), *memory_);
  const Stream stream;
  Graph graph(stream.get(), [&] { EXPECT_TRUE(placed.run(stream.get()).ok()); });
  for (int replay = 0; replay < 3; ++replay) {
    fill_async(placed.arguments.out.data, not_a_number, bytes_of(job.out), stream.get());
    graph.launch(stream.get());
    synchronize(stream.get());
    EXPECT_EQ(download(placed.arguments.out.data, bytes_of(job.out)), tools::array_of(eager.out).bytes);
  }
}

TEST_F(GpuStream, N6_GraphOfTheBackward) {
  Job forward = busy_job(3);
  run(forward);
  const Job job = backward_of(forward, 4);
  const auto plan = plan_of(job, deterministic());
  if (!plan.ok()) GTEST_SKIP() << plan.status().message;
  const Placed placed(job, *plan, *memory_);
  Job eager = job;
  run(eager, deterministic());
  const Stream stream;
  Graph graph(stream.get(), [&] { EXPECT_TRUE(placed.run(stream.get()).ok()); });
  for (int replay = 0; replay < 3; ++replay) {
    fill_async(placed.arguments.grad_query.data, not_a_number, bytes_of(job.grad_query), stream.get());
    graph.launch(stream.get());
    synchronize(stream.get());
    EXPECT_EQ(download(placed.arguments.grad_query.data, bytes_of(job.grad_query)),
              tools::array_of(eager.grad_query).bytes);
  }
}

/// All its kernels: searches for means and magnitudes, their sums, and both that write; replayed on other numbers.
TEST_F(GpuStream, N6_GraphOfTheQuantiser) {
  const auto quantising = [](uint64_t seed) {
    Job job = make_job({.batch = 2, .queries = 700, .keys = 1000, .query_heads = 4, .key_heads = 2, .seed = seed});
    job.pass = Pass::quantize;
    job.out = job.lse = {};
    Quantization& q = job.problem.quantization;
    q.query = q.value = Granularity::head;
    q.key = Granularity::tensor;
    q.hadamard = q.value_mean = true;
    tools::allocate_quantised(job, Dtype::e4m3);
    return job;
  };
  const Job job = quantising(1);
  const Placed placed(job, planned(job), *memory_);
  const Stream stream;
  Graph graph(stream.get(), [&] {
    const Status status = placed.run(stream.get());
    EXPECT_TRUE(status.ok()) << status.message;
  });
  for (const uint64_t seed : {1, 2, 3}) {
    Job eager = quantising(seed);
    for (const tools::Role& role : tools::roles()) {
      const Tensor& tensor = eager.*role.tensor;
      if (!tensor.present() || !role.used(Pass::quantize) || role.written(Pass::quantize)) continue;
      const Bytes elements = tools::array_of(tensor).bytes;  // of the tensor itself, without what surrounds it
      memory_->upload((placed.arguments.*role.view).data, elements.data(), elements.size());
    }
    run(eager);
    graph.launch(stream.get());
    synchronize(stream.get());
    for (const tools::Role& role : tools::roles()) {
      const Tensor& tensor = eager.*role.tensor;
      if (!tensor.present() || !role.written(Pass::quantize)) continue;
      EXPECT_EQ(download((placed.arguments.*role.view).data, bytes_of(tensor)), tools::array_of(tensor).bytes)
          << role.name << ", seed " << seed;
    }
  }
}

TEST_F(GpuStream, N1_TensorsOnTheSecondGpuWhileTheFirstIsCurrent) {
  if (tools::cuda_info().devices.size() < 2) GTEST_SKIP() << "there is one GPU; this test needs two";
  void* first = current_context();
  const auto second_memory = tools::cuda_memory(1);  // makes its context current
  void* second = current_context();
  ASSERT_NE(first, second);
  for (const bool current : {true, false}) {
    Job job = busy_job(5);
    Problem problem = tools::problem_of(job, second_memory->device());
    problem.options.backend = Backend::sm90;
    make_current(current ? second : first);
    auto plan = tandem::plan(Pass::forward, problem);
    ASSERT_TRUE(plan.ok()) << plan.status().message;
    EXPECT_EQ(current_context(), current ? second : first) << "planning leaves the current device alone";
    make_current(second);
    tools::Execution execution(job, *plan, *second_memory);
    make_current(current ? second : first);
    const Status status = execution.run();
    EXPECT_TRUE(status.ok()) << status.message;
    EXPECT_EQ(current_context(), current ? second : first) << "running leaves the current device alone";
    make_current(second);
    execution.fetch(job);
    expect_right(job);
  }
  make_current(first);
}

}  // namespace
}  // namespace tandem::testing

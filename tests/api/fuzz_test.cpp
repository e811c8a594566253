// Seeded random mutations of problems and arguments: whatever is handed in, the answer is a Status, and what is
// accepted keeps the promises that backends rely on. Meant for the sanitizers too.
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <random>

#include "api/dlpack.hpp"
#include "support.hpp"
#include "tandem/tandem.h"
#if TANDEM_HAS_SM90
#include "plan/forward_sm90.hpp"
#endif

namespace tandem::testing {
namespace {

class Fuzzer {
 public:
  explicit Fuzzer(uint32_t seed) : random_(seed) {}

  uint32_t below(uint32_t bound) { return static_cast<uint32_t>(random_() % bound); }

  /// Small, edge or wild.
  int64_t number() {
    static constexpr int64_t edges[] = {-2,
                                        -1,
                                        0,
                                        1,
                                        2,
                                        3,
                                        7,
                                        8,
                                        16,
                                        64,
                                        512,
                                        513,
                                        1 << 29,
                                        1 << 30,
                                        INT32_MAX,
                                        INT32_MIN,
                                        INT64_MAX,
                                        INT64_MIN,
                                        INT64_C(1) << 32,
                                        INT64_C(1) << 62};
    return below(3) == 0 ? static_cast<int64_t>(random_()) : edges[below(std::size(edges))];
  }

  void mutate(TensorSpec& spec) {
    switch (below(7)) {
      case 0:
        spec.dtype = static_cast<Dtype>(static_cast<int>(below(10)) - 1);
        break;
      case 1:
        spec.device = {static_cast<DeviceKind>(below(3)), static_cast<int>(below(3)) - 1};
        break;
      case 2:
        spec.rank = static_cast<int>(number());
        break;
      case 3:
        spec.size[below(5)] = number();
        break;
      case 4:
        spec.stride[below(5)] = number();
        break;
      case 5:
        spec.alignment = static_cast<int>(number());
        break;
      default:
        spec = {};
    }
  }

  void mutate(Problem& problem) {
    TensorSpec* const specs[] = {&problem.query,      &problem.key,      &problem.value,
                                 &problem.out,        &problem.lse,      &problem.grad_out,
                                 &problem.grad_query, &problem.grad_key, &problem.grad_value};
    switch (below(8)) {
      case 0:
        problem.scale = std::bit_cast<float>(static_cast<uint32_t>(random_()));
        problem.softcap = std::bit_cast<float>(static_cast<uint32_t>(random_()));
        break;
      case 1:
        problem.mask = {below(2) == 0, number(), number(), {}};
        if (below(2)) problem.mask.diagonal = number();
        break;
      case 2:
        problem.lengths = {number(), number(), number(), below(2) == 0, below(2) == 0, below(2) == 0, below(2) == 0};
        break;
      case 3:
        problem.options.backend = static_cast<Backend>(below(6));
        problem.options.num_splits = below(4) ? 1 : static_cast<int>(number());
        problem.options.threads = static_cast<int>(number());
        problem.sinks = below(2);
        break;
      case 4:
        *specs[below(9)] = *specs[below(9)];
        break;
      default:
        mutate(*specs[below(9)]);
    }
  }

  void mutate(Arguments& arguments, void* memory) {
    TensorView* const views[] = {&arguments.query,    &arguments.key,       &arguments.value,    &arguments.out,
                                 &arguments.lse,      &arguments.cu_query,  &arguments.cu_key,   &arguments.used_query,
                                 &arguments.used_key, &arguments.sinks,     &arguments.grad_out, &arguments.grad_query,
                                 &arguments.grad_key, &arguments.grad_value};
    TensorView& view = *views[below(std::size(views))];
    switch (below(4)) {
      case 0:
        view.data = below(2) ? nullptr : memory;
        break;
      case 1:
        view = *views[below(std::size(views))];
        break;
      default:
        mutate(view.spec);
    }
  }

 private:
  std::mt19937_64 random_;
};

void expect_sound(const Status& status) {
  ASSERT_FALSE(status.ok());
  ASSERT_NE(status.message[0], '\0');
  ASSERT_NE(status.code, Code::internal) << status.message;
  ASSERT_LT(strnlen(status.argument, sizeof status.argument), sizeof status.argument);
  ASSERT_LT(strnlen(status.message, sizeof status.message), sizeof status.message);
}

void expect_promises(const internal::Attention& attention) {
  ASSERT_GE(attention.key_heads, 1);
  ASSERT_EQ(attention.query_heads % attention.key_heads, 0);
  for (const int64_t count :
       {attention.batch, attention.max_query, attention.max_key, attention.total_query, attention.total_key}) {
    ASSERT_GE(count, 0);
    ASSERT_LT(count, internal::row_limit);
  }
  for (const int64_t dim : {attention.head_dim, attention.value_dim}) {
    ASSERT_GE(dim, 1);
    ASSERT_LE(dim, 512);
  }
  ASSERT_TRUE(std::isfinite(attention.scale));
  ASSERT_TRUE(std::isfinite(attention.softcap));
  ASSERT_GE(attention.softcap, 0);
  ASSERT_GE(attention.window.left, 0);
  ASSERT_GE(attention.window.right, 0);
  ASSERT_NE(attention.backend, Backend::automatic);
  ASSERT_TRUE(attention.out.present());
  ASSERT_TRUE(internal::check_distinct("out", attention.out).ok() || attention.pass == Pass::backward);
}

TEST(Fuzz, ProblemsNeverCrash) {
  Fuzzer fuzzer(20240711);
  int accepted = 0;
  const Problem bases[] = {dense_problem(), packed_problem(), backward_problem()};
  for (int i = 0; i < 60000; ++i) {
    const uint32_t base = fuzzer.below(3);
    Problem problem = bases[base];
    for (uint32_t n = 1 + fuzzer.below(3); n > 0; --n) fuzzer.mutate(problem);
    const auto result = internal::resolve(base == 2 ? Pass::backward : Pass::forward, problem);
    if (result.ok()) {
      ++accepted;
      expect_promises(*result);
    } else {
      expect_sound(result.status());
    }
    if (::testing::Test::HasFatalFailure()) FAIL() << "iteration " << i;
  }
  EXPECT_GT(accepted, 1000);
}

TEST(Fuzz, BackendsPlanWhateverIsResolved) {
  Fuzzer fuzzer(77);
  const Problem bases[] = {dense_problem(), packed_problem(), backward_problem()};
  const Backend backends[] = {Backend::automatic, Backend::cpu, Backend::emulator};
  int planned = 0;
  for (int i = 0; i < 6000; ++i) {
    const uint32_t base = fuzzer.below(3);
    Problem problem = bases[base];
    problem.options.backend = backends[fuzzer.below(3)];
    for (uint32_t n = 1 + fuzzer.below(3); n > 0; --n) fuzzer.mutate(problem);
    const auto result = plan(base == 2 ? Pass::backward : Pass::forward, problem);
    if (result.ok()) {
      ++planned;
      ASSERT_FALSE(result->describe().empty());
      ASSERT_NE(result->backend(), Backend::automatic);
      ASSERT_LT(result->workspace_bytes(), size_t{1} << 50) << "iteration " << i;
    } else {
      expect_sound(result.status());
    }
    if (::testing::Test::HasFatalFailure()) FAIL() << "iteration " << i;
  }
  EXPECT_TRUE(planned > 100 || !available(Backend::cpu).ok()) << planned;
}

#if TANDEM_HAS_SM90
TEST(Fuzz, HopperPlansWhateverIsResolved) {
  Fuzzer fuzzer(90);
  const Problem bases[] = {dense_problem(), packed_problem()};
  int planned = 0;
  for (int i = 0; i < 30000; ++i) {
    Problem problem = bases[fuzzer.below(2)];
    for (uint32_t n = fuzzer.below(4); n > 0; --n) fuzzer.mutate(problem);
    const auto attention = internal::resolve(Pass::forward, problem);
    if (!attention.ok()) continue;
    const auto made = internal::plan_forward_sm90(*attention, {});
    if (!made.ok()) {
      expect_sound(made.status());
    } else {
      ++planned;
      ASSERT_NE(made->variant, nullptr);
      ASSERT_GE(made->variant->config.head_dim, attention->head_dim);
      ASSERT_GE(made->variant->config.value_dim, attention->value_dim);
      ASSERT_TRUE(made->empty || (made->tiles > 0 && made->grid > 0 && made->grid <= made->tiles)) << "iteration " << i;
      ASSERT_FALSE(internal::describe(*made, *attention).empty());
    }
    if (::testing::Test::HasFatalFailure()) FAIL() << "iteration " << i;
  }
  EXPECT_GT(planned, 1000);
}
#endif

TEST(Fuzz, ArgumentsNeverCrash) {
  Fuzzer fuzzer(42);
  Problem everything = packed_problem();
  everything.sinks = everything.lengths.used_query = everything.lengths.used_key = true;
  Bench benches[] = {Bench(dense_problem()), Bench(everything), Bench(backward_problem(), Pass::backward)};
  alignas(256) static char memory[256];
  for (int i = 0; i < 60000; ++i) {
    Bench& bench = benches[fuzzer.below(3)];
    Arguments arguments = bench.arguments;
    // Lengths are read where their spec and pointer pass, so that only pointers to enough memory are planted.
    for (uint32_t n = 1 + fuzzer.below(3); n > 0; --n) fuzzer.mutate(arguments, memory);
    const int before = bench.executable->runs;
    const Status status = Plan(bench.executable).run(arguments);
    ASSERT_EQ(bench.executable->runs, before + (status.ok() ? 1 : 0));
    if (!status.ok()) expect_sound(status);
    if (::testing::Test::HasFatalFailure()) FAIL() << "iteration " << i;
  }
}

TEST(Fuzz, LengthsNeverCrash) {
  Fuzzer fuzzer(3);
  Problem everything = packed_problem();
  everything.lengths.used_query = everything.lengths.used_key = true;
  Bench bench(everything);
  const Bench original(everything);
  for (int i = 0; i < 20000; ++i) {
    bench.cu_query = original.cu_query;
    bench.cu_key = original.cu_key;
    bench.used_query = original.used_query;
    bench.used_key = original.used_key;
    bench.arguments.cu_query.data = bench.cu_query.data();
    bench.arguments.cu_key.data = bench.cu_key.data();
    bench.arguments.used_query.data = bench.used_query.data();
    bench.arguments.used_key.data = bench.used_key.data();
    std::vector<int32_t>* const all[] = {&bench.cu_query, &bench.cu_key, &bench.used_query, &bench.used_key};
    std::vector<int32_t>& chosen = *all[fuzzer.below(4)];
    chosen[fuzzer.below(static_cast<uint32_t>(chosen.size()))] = static_cast<int32_t>(fuzzer.number());
    const Status status = bench.run();
    if (!status.ok()) expect_sound(status);
    for (int b = 0; status.ok() && b < 3; ++b) {
      ASSERT_LE(bench.cu_key[b], bench.cu_key[b + 1]);
      ASSERT_LE(bench.cu_query[b + 1], 64);
      ASSERT_LE(bench.cu_key[b] + bench.used_key[b], 96);
    }
    if (::testing::Test::HasFatalFailure()) FAIL() << "iteration " << i;
  }
}

TEST(Fuzz, DlpackNeverCrashes) {
  Fuzzer fuzzer(5);
  for (int i = 0; i < 20000; ++i) {
    int64_t shape[5], strides[5];
    for (int d = 0; d < 5; ++d) {
      shape[d] = fuzzer.number();
      strides[d] = fuzzer.number();
    }
    const DLTensor tensor{nullptr,
                          {static_cast<DLDeviceType>(fuzzer.below(15)), static_cast<int>(fuzzer.below(3)) - 1},
                          static_cast<int>(fuzzer.below(8)) - 1,
                          {static_cast<uint8_t>(fuzzer.below(12)), static_cast<uint8_t>(8 << fuzzer.below(4)),
                           static_cast<uint16_t>(fuzzer.below(8) ? 1 : 2)},
                          shape,
                          fuzzer.below(2) ? strides : nullptr,
                          static_cast<uint64_t>(fuzzer.number())};
    TensorView view;
    const Status status = internal::from_dlpack("query", &tensor, view);
    if (!status.ok()) {
      expect_sound(status);
      continue;
    }
    tandem_problem problem;
    tandem_problem_init(&problem, sizeof problem);
    problem.query = problem.key = problem.value = &tensor;
    problem.options_backend = TANDEM_BACKEND_SM90 + 10;  // never runs: everything before the backend is tested
    tandem_plan* plan = nullptr;
    tandem_error error;
    ASSERT_NE(tandem_plan_create(TANDEM_FORWARD, &problem, &plan, &error), TANDEM_OK);
    ASSERT_NE(error.code, TANDEM_INTERNAL) << error.message;
  }
}

}  // namespace
}  // namespace tandem::testing

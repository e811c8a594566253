// What plan/forward_sm90.cpp decides: variants, refusals, copies, schedules, workspace.
#include "plan/forward_sm90.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "sm90/support.hpp"

namespace tandem::internal {
namespace {

using std::string_view;

bool contains(string_view text, string_view part) { return text.find(part) != string_view::npos; }

void expect_refusal(const Attention& attention, const char* argument, string_view part) {
  const auto plan = plan_forward_sm90(attention, h200);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code, Code::unsupported);
  EXPECT_STREQ(plan.status().argument, argument);
  EXPECT_TRUE(contains(plan.status().message, part)) << plan.status().message;
}

TEST(ForwardVariant, SmallestThatServesEachHeadDim) {
  for (const Dtype dtype : {Dtype::bf16, Dtype::fp16}) {
    for (int64_t dim = 8; dim <= 256; dim += 8) {
      const auto plan = planned(dense(1, 128, 128, 2, 2, dim, dim, dtype));
      ASSERT_TRUE(plan.ok()) << dim << ": " << plan.status().message;
      const std::vector<int64_t> compiled = {64, 96, 128, 192, 256};
      const int64_t expected = *std::lower_bound(compiled.begin(), compiled.end(), dim);
      EXPECT_EQ(plan->variant->config.head_dim, expected) << dim;
      EXPECT_EQ(plan->variant->config.value_dim, expected) << dim;
      EXPECT_EQ(plan->variant->config.dtype, dtype) << dim;
    }
  }
}

TEST(ForwardVariant, ValueDimsThatDiffer) {
  const auto chosen = [](int64_t dim, int64_t value_dim) {
    const auto plan = planned(dense(1, 128, 128, 2, 2, dim, value_dim));
    return plan.ok() ? std::string(plan->variant->name) : std::string(plan.status().message);
  };
  EXPECT_EQ(chosen(192, 128), "forward_bf16_d192_v128");
  EXPECT_EQ(chosen(160, 64), "forward_bf16_d192_v128");
  EXPECT_EQ(chosen(192, 136), "forward_bf16_d192");
  EXPECT_EQ(chosen(64, 128), "forward_bf16_d128");
  EXPECT_EQ(chosen(128, 64), "forward_bf16_d128");
  EXPECT_EQ(chosen(64, 256), "forward_bf16_d256");
}

TEST(ForwardVariant, DoesNotDependOnBatchLengthsOrMask) {
  const auto* variant = planned(dense(1, 1, 4, 128))->variant;
  for (const int64_t batch : {1, 17, 1000}) {
    for (const int64_t rows : {1, 127, 4096}) {
      for (const bool causal : {false, true}) {
        Problem problem = dense(batch, rows, 4, 128);
        problem.mask.causal = causal;
        EXPECT_EQ(planned(problem)->variant, variant);
      }
    }
  }
  EXPECT_EQ(planned(packed(3, 300, 400, 4, 128))->variant, variant);
}

TEST(ForwardRefusal, NamesTheArgument) {
  expect_refusal(resolved(dense(1, 64, 64, 1, 1, 60, 64)), "query", "multiples of 8 up to 256, not 60");
  expect_refusal(resolved(dense(1, 64, 64, 1, 1, 264, 64)), "query", "not 264");
  expect_refusal(resolved(dense(1, 64, 64, 1, 1, 64, 20)), "value", "not 20");
  expect_refusal(resolved(dense(1, 64, 64, 1, 1, 64, 512)), "value", "not 512");
  Attention attention = resolved(dense(1, 64, 1, 64));
  attention.softcap = 30;
  expect_refusal(attention, "softcap", "softcap");
  attention = resolved(dense(1, 64, 1, 64));
  attention.dtype = Dtype::fp32;
  expect_refusal(attention, "query", "fp32");
}

TEST(ForwardRefusal, Fp32OnAGpuIsRefusedAlready) {
  const auto attention = resolve(Pass::forward, dense(1, 64, 64, 1, 1, 64, 64, Dtype::fp32));
  ASSERT_FALSE(attention.ok());
  EXPECT_EQ(attention.status().code, Code::unsupported);
  EXPECT_STREQ(attention.status().argument, "query");
}

TEST(ForwardRefusal, MoreTilesThanALaunchTakes) {
  // 2^23 heads of 2^8 tiles each, with every product of sizes in 64 bits.
  Problem problem = dense(1, 256 * 192, 64, 1, 1, 8, 8);
  problem.query = contiguous(Dtype::bf16, cuda(0), {1, 256 * 192, 1 << 23, 8});
  expect_refusal(resolved(problem), "query", "2147483648 query tiles are too many");
  problem.query = contiguous(Dtype::bf16, cuda(0), {1, 256 * 192 - 192, 1 << 23, 8});
  const auto plan = planned(problem);
  ASSERT_TRUE(plan.ok()) << plan.status().message;
  EXPECT_EQ(plan->tiles, 255 << 23);
}

// ------------------------------------------------------------------------------------------------ copies

TEST(ForwardCopies, NoneWhereTmaTakesTheTensorsAsTheyLie) {
  Problem problem = dense(2, 300, 4, 128);
  problem.query.stride = {300 * 12 * 128, 12 * 128, 128, 1};  // a slice of a packed qkv
  problem.key.stride = {128, 4 * 2 * 128, 2 * 128, 1};        // batch innermost
  const auto plan = planned(problem);
  ASSERT_TRUE(plan.ok());
  for (const char* copy : {plan->copy_query, plan->copy_key, plan->copy_value, plan->copy_out})
    EXPECT_EQ(copy, nullptr) << copy;
}

TEST(ForwardCopies, AlignmentBelow16) {
  Problem problem = dense(2, 300, 4, 128);
  problem.query.alignment = 8;
  problem.value.alignment = 2;
  const auto plan = planned(problem);
  EXPECT_TRUE(contains(plan->copy_query, "16-byte aligned"));
  EXPECT_EQ(plan->copy_key, nullptr);
  EXPECT_TRUE(contains(plan->copy_value, "16-byte aligned"));
  EXPECT_EQ(plan->copy_out, nullptr);
}

TEST(ForwardCopies, StrideOfZero) {
  Problem problem = dense(2, 300, 4, 128);
  problem.key.stride[0] = 0;    // one key for the whole batch
  problem.value.stride[2] = 0;  // one value for all heads
  const auto plan = planned(problem);
  EXPECT_EQ(plan->copy_query, nullptr);
  EXPECT_TRUE(contains(plan->copy_key, "stride"));
  EXPECT_TRUE(contains(plan->copy_value, "stride"));
}

TEST(ForwardCopies, OddStrides) {
  for (int dimension = 0; dimension < 3; ++dimension) {
    Problem problem = dense(2, 300, 4, 128);
    problem.query.stride = {400 * 600, 600, 136, 1};
    EXPECT_EQ(planned(problem)->copy_query, nullptr);
    problem.query.stride[static_cast<size_t>(dimension)] += 4;
    EXPECT_NE(planned(problem)->copy_query, nullptr) << "dimension " << dimension;
  }
}

TEST(ForwardCopies, StridesOfDimensionsOfOneElementDoNotMatter) {
  Problem problem = dense(1, 300, 1, 128);
  problem.query.stride = {7, 128, 3, 1};
  EXPECT_EQ(planned(problem)->copy_query, nullptr);
}

TEST(ForwardCopies, UsedLengthsNeedBatchesWholeRowsApart) {
  Problem problem = dense(2, 300, 4, 128);
  problem.lengths.used_key = true;
  problem.key.stride[0] += 64;  // 16-byte multiples, but no multiple of the row's 512 elements
  EXPECT_TRUE(contains(planned(problem)->copy_key, "batch stride"));
  problem.lengths.used_key = false;
  EXPECT_EQ(planned(problem)->copy_key, nullptr) << "without used lengths it is taken as it lies";
}

TEST(ForwardCopies, UsedLengthsNeedOnePitchOfKeysAndValues) {
  Problem problem = dense(2, 300, 4, 128);
  problem.lengths.used_key = true;
  EXPECT_EQ(planned(problem)->copy_value, nullptr);
  problem.value.stride[0] *= 2;  // sequences twice as far apart as the keys'
  EXPECT_TRUE(contains(planned(problem)->copy_key, "different rows"));
  EXPECT_TRUE(contains(planned(problem)->copy_value, "different rows"));
  problem.key.stride[0] *= 2;
  EXPECT_EQ(planned(problem)->copy_key, nullptr) << "equally far apart is fine";
  problem.key.alignment = 2;  // its copy is row-major, the value's sequences are not
  EXPECT_NE(planned(problem)->copy_value, nullptr);
}

// ------------------------------------------------------------------------------------------------ workspace

TEST(ForwardWorkspace, HoldsEachCopyAndTheCounterApart) {
  Problem problem = dense(2, 1300, 770, 8, 2, 72, 40);
  problem.mask.causal = true;
  problem.out = contiguous(Dtype::bf16, cuda(0), {2, 1300, 8, 40});
  for (TensorSpec* spec : {&problem.query, &problem.key, &problem.value, &problem.out}) spec->alignment = 2;
  const auto plan = planned(problem);
  ASSERT_TRUE(plan.ok());
  ASSERT_TRUE(plan->dynamic);
  struct Part {
    size_t at, bytes;
  };
  std::vector<Part> parts = {{plan->query_at, 2 * 1300 * 8 * 72 * 2},
                             {plan->key_at, 2 * 770 * 2 * 72 * 2},
                             {plan->value_at, 2 * 770 * 2 * 40 * 2},
                             {plan->out_at, 2 * 1300 * 8 * 40 * 2},
                             {plan->counter_at, 4}};
  std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.at < b.at; });
  for (size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(parts[i].at % 256, 0U);
    const size_t end = i + 1 < parts.size() ? parts[i + 1].at : plan->workspace_bytes;
    EXPECT_LE(parts[i].at + parts[i].bytes, end);
  }
}

TEST(ForwardWorkspace, NothingIsReservedForNothing) {
  EXPECT_EQ(planned(dense(4, 4096, 16, 128))->workspace_bytes, 0U);
}

TEST(ForwardWorkspace, CopiesPast32BitsOfBytes) {
  Problem problem = dense(1, 1 << 20, 64, 16, 1, 128, 128);  // 4 GiB of query
  problem.query.alignment = 2;
  EXPECT_EQ(planned(problem)->workspace_bytes, size_t{1} << 32);
}

// ------------------------------------------------------------------------------------------------ schedule

TEST(ForwardSchedule, EmptyProblemsLaunchNothing) {
  for (const Problem& problem :
       {dense(0, 64, 2, 64), dense(2, 0, 64, 2, 2, 64, 64), packed(0, 0, 0, 2, 64), packed(3, 0, 100, 2, 64)}) {
    const auto plan = planned(problem);
    ASSERT_TRUE(plan.ok()) << plan.status().message;
    EXPECT_TRUE(plan->empty);
    EXPECT_EQ(plan->workspace_bytes, 0U);
    EXPECT_TRUE(contains(describe(*plan, resolved(problem)), "nothing to launch"));
  }
  const auto no_keys = planned(dense(2, 64, 0, 2, 2, 64, 64));
  ASSERT_TRUE(no_keys.ok());
  EXPECT_FALSE(no_keys->empty) << "rows without keys are written: zeros";
  EXPECT_TRUE(no_keys->key_side.ragged) << "a tensor map can't have a dimension of 0";
}

TEST(ForwardSchedule, StaticForEqualTilesCountedForUnequalOnes) {
  Problem problem = dense(4, 4096, 16, 128);
  EXPECT_FALSE(planned(problem)->dynamic);
  EXPECT_FALSE(planned(problem)->order.longest_first);
  problem.mask.causal = true;
  EXPECT_TRUE(planned(problem)->dynamic);
  EXPECT_TRUE(planned(problem)->order.longest_first);
  problem.mask.left = 128;  // a causal window's tiles are alike
  EXPECT_FALSE(planned(problem)->order.longest_first);
  problem = dense(4, 4096, 16, 128);
  problem.lengths.used_key = true;
  EXPECT_TRUE(planned(problem)->dynamic);
  EXPECT_TRUE(planned(packed(4, 16384, 16384, 16, 128))->dynamic);
  problem = dense(1, 1024, 4, 128);  // no more tiles than blocks: each takes one
  problem.mask.causal = true;
  EXPECT_FALSE(planned(problem)->dynamic);
}

TEST(ForwardSchedule, GridIsAtMostTheDevice) {
  EXPECT_EQ(planned(dense(4, 4096, 16, 128))->grid, 132);
  EXPECT_EQ(planned(dense(1, 200, 3, 128))->grid, 6);
  EXPECT_EQ(plan_forward_sm90(resolved(dense(4, 4096, 16, 128)), {78})->grid, 78);
}

/// What a scan over the sequences would count, and the rows behind the last one.
int64_t scanned_tiles(const std::vector<int64_t>& lengths, int64_t total, int64_t tile, int64_t heads) {
  int64_t tiles = 0, rest = total;
  for (const int64_t length : lengths) {
    tiles += (length + tile - 1) / tile;
    rest -= length;
  }
  return (tiles + (rest + tile - 1) / tile) * heads;
}

TEST(ForwardSchedule, TilesOfPackedTensorsAreBounded) {
  const int64_t heads = 3, tile = 128;
  const std::vector<std::vector<int64_t>> batches = {{1, 1, 1, 1},           {128, 128}, {129, 127, 1}, {0, 0, 5},
                                                     {1000, 0, 1, 255, 257}, {64}};
  for (const auto& lengths : batches) {
    int64_t total = 0, longest = 0;
    for (const int64_t length : lengths) {
      total += length;
      longest = std::max(longest, length);
    }
    Problem problem = packed(static_cast<int64_t>(lengths.size()), total, total, heads, 128);
    problem.lengths.max_query = problem.lengths.max_key = longest;
    const auto plan = planned(problem);
    ASSERT_TRUE(plan.ok());
    ASSERT_TRUE(plan->scan);
    EXPECT_GE(plan->tiles, scanned_tiles(lengths, total, tile, heads));
    EXPECT_LE(plan->tiles, (total / tile + static_cast<int64_t>(lengths.size()) + 1) * heads);
  }
}

TEST(ForwardSchedule, SectionsShareTheHeadsEvenly) {
  for (const int64_t batch : {1, 3, 8}) {
    for (const int64_t heads : {1, 6, 17, 40}) {
      for (const int64_t rows : {512, 4096, 65536}) {
        Problem problem = dense(batch, rows, heads, 128);
        problem.mask.causal = true;
        const auto plan = planned(problem);
        const int64_t all = batch * heads, section = plan->order.section, sections = (all + section - 1) / section;
        ASSERT_GE(section, 1);
        ASSERT_LE(section, all);
        EXPECT_EQ(section, (all + sections - 1) / sections) << all << " heads of " << rows << " rows";
      }
    }
  }
}

TEST(ForwardSchedule, F10_ALongKeyHeadStillLeavesASection) {
  for (const int64_t keys : {32769, 65536, 4194304}) {
    for (const int64_t queries : {1, 256}) {
      Problem problem = dense(1, queries, keys, 1, 1, 128, 128);
      problem.mask.causal = true;
      const auto plan = planned(problem);
      ASSERT_TRUE(plan.ok());
      EXPECT_EQ(plan->order.section, 1);
    }
  }
}

TEST(ForwardDescription, NamesVariantScheduleAndCopies) {
  Problem problem = dense(2, 4096, 16, 128);
  problem.mask.causal = true;
  problem.key.alignment = 2;
  const Attention attention = resolved(problem);
  const std::string text = describe(*plan_forward_sm90(attention, h200), attention);
  for (const char* part : {"forward_bf16_d128\n", "128 queries x 128 keys", "1024 tiles on 132 blocks", "by a counter",
                           "longest first", "copy        key: its data is not promised to be 16-byte aligned"})
    EXPECT_TRUE(contains(text, part)) << part << " is missing in:\n" << text;
  EXPECT_FALSE(contains(text, "copy        query"));
  EXPECT_TRUE(
      contains(describe(*planned(packed(3, 300, 300, 2, 64)), resolved(packed(3, 300, 300, 2, 64))), "at most"));
}

}  // namespace
}  // namespace tandem::internal

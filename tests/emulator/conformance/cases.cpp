// The table of conformance cases, and their deterministic inputs.
#include "cases.hpp"

#include <cmath>
#include <cstring>
#include <limits>

#include "common/dtypes.hpp"

namespace tandem::conformance {

namespace {

/// A linear congruential generator: the same bytes everywhere.
class Random {
 public:
  explicit Random(const std::string& name) {
    for (const char c : name) state_ = (state_ ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  }
  uint32_t next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state_ >> 33);
  }
  int between(int low, int high) { return low + static_cast<int>(next() % static_cast<uint32_t>(high - low + 1)); }

 private:
  uint64_t state_ = 0xcbf29ce484222325u;
};

template <class T>
void append(std::vector<uint8_t>& bytes, const T& value) {
  const auto* begin = reinterpret_cast<const uint8_t*>(&value);
  bytes.insert(bytes.end(), begin, begin + sizeof value);
}

std::vector<uint8_t> random_bytes(Random& random, size_t count) {
  std::vector<uint8_t> bytes(count);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.next());
  return bytes;
}

// ------------------------------------------------------------------------------------- barriers, warps, arithmetic

Case simple(const char* kernel, int threads, int shared_bytes, size_t output_bytes) {
  Case c;
  c.name = c.kernel = kernel;
  c.threads = threads;
  c.shared_bytes = shared_bytes;
  Random random(c.name);
  c.input = random_bytes(random, 4096);
  c.output.assign(output_bytes, 0);
  return c;
}

void add_barrier_cases(std::vector<Case>& cases) {
  constexpr int shared = 4 * 8 + 256 * 4;
  cases.push_back(simple("mbarrier_phases", 32, shared, 18 * 4));
  cases.push_back(simple("mbarrier_bytes", 64, shared, 1024));
  cases.push_back(simple("named_barriers", 64, shared, 512));
  cases.push_back(simple("trade_registers", 384, 16, 384 * 4));
  cases.push_back(simple("flags_between_blocks", 64, 16, 512));
  cases.back().grid = 2;
  cases.push_back(simple("atomics", 64, 16, 8));
  cases.back().grid = 3;
}

std::vector<float> notable_floats(Random& random, bool special) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> values = {0.0f,     -0.0f,     1.0f,   -1.0f,   0.5f,    3.0f,     65504.0f,
                               65519.0f, 65520.0f,  6e-8f,  2.9e-8f, 1e-40f,  infinity, -infinity,
                               3e38f,    -3.39e38f, 1e-38f, 127.5f,  -126.5f, -149.0f,  128.0f};
  if (special) values.push_back(std::numeric_limits<float>::quiet_NaN());
  while (values.size() < 512) {
    const float mantissa = 1.0f + static_cast<float>(random.next() % (1u << 23)) * 0x1p-23f;
    values.push_back(std::ldexp(random.next() & 1 ? mantissa : -mantissa, random.between(-20, 17)));
  }
  return values;
}

void add_warp_cases(std::vector<Case>& cases) {
  cases.push_back(simple("warp_collectives", 32, 512, 20 * 32 * 4));
  cases.push_back(simple("matrices", 32, 512, 512 * 4));
  for (const bool exact : {true, false}) {
    Case c = simple(exact ? "conversions" : "special_functions", 128, 512, 0);
    Random random(c.name);
    c.input.clear();
    const auto values = notable_floats(random, exact);
    for (const float value : values) append(c.input, value);
    c.argument[0] = static_cast<int32_t>(values.size());
    c.output.assign(values.size() * 4 * (exact ? 5 : 3), 0);
    c.compare = exact ? Compare::exact : Compare::approximate;
    cases.push_back(c);
  }
}

// ------------------------------------------------------------------------------------- copies

struct Box {
  Dtype element;
  int rank;
  uint64_t size[5], stride[4];
  uint32_t box[5];
  int swizzle;
};

emulator::TensorMapRequest request(const Box& box) {
  emulator::TensorMapRequest map;
  map.element = box.element;
  map.rank = box.rank;
  std::memcpy(map.size, box.size, sizeof map.size);
  std::memcpy(map.stride, box.stride, sizeof map.stride);
  std::memcpy(map.box, box.box, sizeof map.box);
  map.swizzle = box.swizzle;
  return map;
}

int box_bytes(const Box& box) {
  int bytes = box.element == Dtype::fp32 ? 4 : box.element == Dtype::bf16 ? 2 : 1;
  for (int i = 0; i < box.rank; ++i) bytes *= static_cast<int>(box.box[i]);
  return bytes;
}

constexpr int copy_shared = 32768 + 1024;
constexpr size_t tensor_bytes = 65536;

Case copy(const std::string& name, const char* kernel, int bytes, std::initializer_list<int> coordinates,
          int offset = 0) {
  Case c;
  c.name = std::string(kernel) + "/" + name;
  c.kernel = kernel;
  c.shared_bytes = copy_shared;
  int i = 0;
  for (const int coordinate : coordinates) c.argument[i++] = coordinate;
  c.argument[5] = bytes;
  c.argument[6] = offset;
  return c;
}

Case load(const std::string& name, const Box& box, std::initializer_list<int> coordinates, int offset = 0,
          size_t map_offset = 0) {
  Case c = copy(name, box.rank == 4 ? "tma_load_4d" : "tma_load_5d", box_bytes(box), coordinates, offset);
  Random random(c.name);
  c.input = random_bytes(random, tensor_bytes);
  c.output.assign(static_cast<size_t>(box_bytes(box)), 0xcd);
  c.map = request(box);
  c.map_offset = map_offset;
  return c;
}

Case store(const std::string& name, const Box& box, std::initializer_list<int> coordinates, bool add = false,
           int offset = 0) {
  Case c = copy(name, add ? "tma_reduce_add_5d" : "tma_store_5d", box_bytes(box), coordinates, offset);
  Random random(c.name);
  const auto small_floats = [&](std::vector<uint8_t>& bytes, size_t count) {
    while (bytes.size() < count) append(bytes, static_cast<float>(random.between(-1000, 1000)) * 0.25f);
  };
  if (add) {
    small_floats(c.input, static_cast<size_t>(box_bytes(box)));
    small_floats(c.output, tensor_bytes);
  } else {
    c.input = random_bytes(random, static_cast<size_t>(box_bytes(box)));
    c.output.assign(tensor_bytes, 0xcd);
  }
  c.map = request(box);
  c.map_of_output = true;
  return c;
}

constexpr Dtype b16 = Dtype::bf16;

/// (column, row, head, batch, 1) of a dense tensor of 40 rows, 3 heads, 2 batches.
Box dense(int columns, int box_columns, int box_rows, int swizzle) {
  const auto row = static_cast<uint64_t>(columns) * 2 * 3;
  return {b16,
          5,
          {static_cast<uint64_t>(columns), 40, 3, 2, 1},
          {row, static_cast<uint64_t>(columns) * 2, 40 * row, 16},
          {static_cast<uint32_t>(box_columns), static_cast<uint32_t>(box_rows), 1, 1, 1},
          swizzle};
}

/// A packed tensor of 2 heads of 64 columns whose sequences are windows placed by the last two coordinates: 2^30 rows,
/// and strides that add up to 2^64.
Box ragged(int columns, int rows) {
  const auto row = static_cast<uint64_t>(columns) * 2 * 2;
  return {b16,
          5,
          {static_cast<uint64_t>(columns), 1u << 30, 2, 0x7fff0000, 0x7fff0000},
          {row, static_cast<uint64_t>(columns) * 2, row, (uint64_t{1} << 34) - row},
          {columns % 64 ? 32u : 64u, static_cast<uint32_t>(rows), 1, 1, 1},
          columns % 64 ? 64 : 128};
}
constexpr int all_rows = 1 << 30;

void add_load_cases(std::vector<Case>& cases) {
  for (const int swizzle : {32, 64, 128}) {
    const std::string s = std::to_string(swizzle);
    const Box box = dense(64, swizzle / 2, 24, swizzle);
    cases.push_back(load("swizzle" + s, box, {0, 3, 1, 1, 0}));
    cases.push_back(load("swizzle" + s + "_below", box, {0, -5, 2, 0, 0}));
    cases.push_back(load("swizzle" + s + "_beyond", box, {0, 30, 2, 0, 0}));
    cases.push_back(load("swizzle" + s + "_offset", box, {0, 1, 0, 0, 0}, 640));
  }
  cases.push_back(load("columns_beyond", dense(40, 64, 16, 128), {0, 2, 1, 0, 0}));
  cases.push_back(load("second_chunk", dense(72, 64, 16, 128), {64, 2, 1, 0, 0}));
  // (A column that is not at a multiple of 16 bytes is an illegal instruction on hardware.)
  cases.push_back(load("shifted_column", dense(64, 64, 16, 128), {8, 2, 1, 0, 0}));
  cases.push_back(load("columns_below", dense(64, 64, 16, 128), {-16, 2, 1, 0, 0}));
  cases.push_back(load("head_beyond", dense(64, 64, 16, 128), {0, 2, 3, 0, 0}));
  cases.push_back(load("batch_beyond", dense(64, 64, 16, 128), {0, 2, 0, 2, 0}));
  cases.push_back(load("last_beyond", dense(64, 64, 16, 128), {0, 2, 0, 0, 1}));
  Box wide = dense(64, 64, 8, 128);
  wide.box[2] = 2, wide.box[3] = 2;
  cases.push_back(load("three_dimensions", wide, {0, 36, 2, 0, 0}));
  cases.push_back(load("rank4", {b16, 4, {64, 40, 3, 2}, {384, 128, 15360}, {64, 16, 1, 1}, 128}, {0, 3, 1, 1}));
  cases.push_back(
      load("rank4_beyond", {b16, 4, {64, 40, 3, 2}, {384, 128, 15360}, {64, 16, 2, 1}, 128}, {0, 33, 2, 1}));
  cases.push_back(load("fp32", {Dtype::fp32, 5, {32, 60, 2, 1, 1}, {256, 128, 16384, 16}, {32, 20, 1, 1, 1}, 128},
                       {0, 50, 1, 0, 0}));
  cases.push_back(load("e4m3", {Dtype::e4m3, 5, {96, 60, 2, 1, 1}, {192, 96, 16384, 16}, {128, 20, 1, 1, 1}, 128},
                       {0, 50, 1, 0, 0}));
  for (const int columns : {64, 96, 128}) {
    const std::string s = std::to_string(columns);
    const Box box = ragged(columns, 32);
    cases.push_back(load("ragged" + s, box, {0, all_rows - 50 + 3, 1, 20 + 50, all_rows}));
    cases.push_back(load("ragged" + s + "_short", box, {0, all_rows - 7, 0, 90 + 7, all_rows}));
    cases.push_back(load("ragged" + s + "_first", box, {0, all_rows - 32, 1, 32, all_rows}));
    cases.push_back(load("ragged" + s + "_behind", box, {0, all_rows, 1, 11, all_rows}));
    cases.push_back(load("ragged" + s + "_empty", box, {0, all_rows - 0, 0, 5 + 0, all_rows}));
    cases.push_back(
        load("ragged" + s + "_chunk", box, {columns - (columns % 64 ? 32 : 64), all_rows - 9, 1, 40 + 9, all_rows}));
  }
  for (const int bytes : {16, 512, 4096}) {
    Case c = copy(std::to_string(bytes), "bulk_load", bytes, {48, 0, 0, 0, 0}, 16);
    Random random(c.name);
    c.input = random_bytes(random, tensor_bytes);
    c.output.assign(static_cast<size_t>(bytes), 0xcd);
    cases.push_back(c);
  }
}

/// (A store whose box begins below 0 is an illegal instruction on hardware.)
void add_store_cases(std::vector<Case>& cases) {
  for (const int swizzle : {32, 64, 128}) {
    const std::string s = std::to_string(swizzle);
    const Box box = dense(64, swizzle / 2, 24, swizzle);
    cases.push_back(store("swizzle" + s, box, {0, 3, 1, 1, 0}));
    cases.push_back(store("swizzle" + s + "_beyond", box, {0, 30, 2, 0, 0}));
    cases.push_back(store("swizzle" + s + "_offset", box, {0, 1, 0, 0, 0}, false, 640));
  }
  cases.push_back(store("columns_beyond", dense(40, 64, 16, 128), {0, 2, 1, 0, 0}));
  cases.push_back(store("nothing", dense(64, 64, 16, 128), {0, 2, 3, 0, 0}));
  for (const int columns : {64, 96, 128}) {
    const std::string s = std::to_string(columns);
    const Box box = ragged(columns, 32);
    cases.push_back(store("ragged" + s, box, {0, all_rows - 50 + 3, 1, 20 + 50, all_rows}));
    cases.push_back(store("ragged" + s + "_short", box, {0, all_rows - 7, 0, 90 + 7, all_rows}));
    cases.push_back(store("ragged" + s + "_behind", box, {0, all_rows, 1, 11, all_rows}));
  }
  const Box floats{Dtype::fp32, 5, {32, 60, 2, 1, 1}, {256, 128, 16384, 16}, {32, 20, 1, 1, 1}, 128};
  cases.push_back(store("inside", floats, {0, 7, 1, 0, 0}, true));
  cases.push_back(store("beyond", floats, {0, 50, 0, 0, 0}, true));
  for (const char* kernel : {"bulk_store", "bulk_reduce_add"}) {
    Case c = store("", floats, {}, std::string(kernel) == "bulk_reduce_add");
    c.name = c.kernel = kernel;
    c.map.reset();
    c.argument[0] = 48;
    c.argument[5] = 1536;
    c.argument[6] = 16;
    cases.push_back(c);
  }
}

// ------------------------------------------------------------------------------------- wgmma

enum class Kind { bf16, fp16, e4m3, int8 };
enum class Major { K, MN };
/// small: integers, whose sums are exact; spread: random numbers; far: exponents far apart, so that sums lose bits.
enum class Numbers { small, spread, far };

void append_number(std::vector<uint8_t>& bytes, Kind kind, Numbers numbers, Random& random) {
  if (kind == Kind::int8) return bytes.push_back(static_cast<uint8_t>(random.next()));
  if (kind == Kind::e4m3) {
    // 0, 1, 1.5, 2, 3, 4; else any number but NaN, or one from the middle of the range.
    constexpr uint8_t integers[] = {0x00, 0x38, 0x40, 0x44, 0x48, 0x3c};
    const uint8_t sign = random.next() & 1 ? 0x80 : 0;
    if (numbers == Numbers::small) return bytes.push_back(sign | integers[random.next() % 6]);
    if (numbers == Numbers::spread) return bytes.push_back(sign | static_cast<uint8_t>(random.between(0x28, 0x48)));
    return bytes.push_back(sign | static_cast<uint8_t>(random.between(0, 0x7e)));
  }
  float value = static_cast<float>(random.between(-4, 4));
  if (numbers != Numbers::small) {
    const float mantissa = 1.0f + static_cast<float>(random.next() % 1024) / 1024;
    const int reach = numbers == Numbers::spread ? 3 : 12;
    value = std::ldexp(random.next() & 1 ? mantissa : -mantissa, random.between(-reach, reach));
  }
  kind == Kind::bf16 ? append(bytes, to_bf16(value).bits) : append(bytes, to_fp16(value).bits);
}

/// Offsets of an operand whose bytes are `rows` by `steps` reductions of 32 bytes.
void describe_operand(Major major, int rows, int swizzle, int steps, bool swapped, int32_t& leading, int32_t& stride,
                      int32_t& advance) {
  const int pattern = 8 * swizzle;
  if (major == Major::K) {
    leading = 16;
    stride = pattern;
    advance = 32;
    return;
  }
  const int row_elements = swizzle / 2, groups = (rows + row_elements - 1) / row_elements;
  leading = swapped ? pattern : 2 * steps * pattern;
  stride = swapped ? groups * pattern : pattern;
  advance = 2 * stride;
}

Case wgmma(const std::string& mode, Kind kind, int width, Major a, Major b, int swizzle, Numbers numbers,
           bool accumulate, bool swapped) {
  constexpr const char* number_names[] = {"small", "spread", "far"};
  Case c;
  c.kernel = "wgmma_" + mode;
  c.name = "wgmma/" + mode + "/" + number_names[static_cast<int>(numbers)] + (accumulate ? "_accumulate" : "") +
           (swapped ? "_swapped" : "");
  c.shared_bytes = 65536;
  const int steps = a == Major::K && b == Major::K   ? swizzle / 32
                    : a == Major::K || b == Major::K ? std::min(2, swizzle / 32)
                                                     : 2;
  describe_operand(a, 64, swizzle, steps, swapped, c.argument[0], c.argument[1], c.argument[4]);
  describe_operand(b, width, swizzle, steps, swapped, c.argument[2], c.argument[3], c.argument[5]);
  c.argument[6] = steps;
  c.argument[7] = accumulate;
  Random random(c.name);
  while (c.input.size() < 65536 + 4 * 128 * 16) append_number(c.input, kind, numbers, random);
  for (int i = 0; i < 128 * width / 2; ++i) {
    const int value = random.between(-1000, 1000);
    kind == Kind::int8 ? append(c.input, value) : append(c.input, static_cast<float>(value));
  }
  c.output.assign(static_cast<size_t>(2 * 128 * width / 2 * 4), 0);
  return c;
}

void add_wgmma_cases(std::vector<Case>& cases) {
  const auto add = [&](const std::string& mode, Kind kind, int width, Major a, Major b, int swizzle) {
    const auto one = [&](Numbers numbers, bool accumulate, bool swapped) {
      cases.push_back(wgmma(mode, kind, width, a, b, swizzle, numbers, accumulate, swapped));
    };
    one(Numbers::small, false, false);
    one(Numbers::small, true, a == Major::MN || b == Major::MN);
    if (width == 16 || (kind == Kind::e4m3 && width == 64 && swizzle == 128)) {
      one(Numbers::spread, true, false);
      one(Numbers::far, true, false);
    }
  };
#define WGMMA_MODE(name, element, width, a_major, b_major, swizzle) \
  add(#name, Kind::element, width, Major::a_major, Major::b_major, swizzle);
#include "wgmma_modes.inc"
}

}  // namespace

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  add_barrier_cases(cases);
  add_warp_cases(cases);
  add_load_cases(cases);
  add_store_cases(cases);
  add_wgmma_cases(cases);
  return cases;
}

uint64_t hash(const std::vector<uint8_t>& bytes) {
  uint64_t value = 0xcbf29ce484222325u;
  for (const uint8_t byte : bytes) value = (value ^ byte) * 0x100000001b3u;
  return value;
}

}  // namespace tandem::conformance

// Cases of every sort for the quantiser's tests.
#include "quantize/support.hpp"

namespace quantize_support {
namespace {

using tandem::Granularity;

/// Blocks of 64 rows of query and 48 of key and value: neither divides the lengths.
Case basic(const char* name, int64_t dim) {
  Case c;
  c.name = name;
  c.queries = 100;
  c.keys = 75;
  c.query_heads = 4;
  c.key_heads = 2;
  c.head_dim = c.value_dim = dim;
  c.quantization.query_rows = 64;
  c.quantization.key_rows = c.quantization.value_rows = 48;
  return c;
}

Case with(Case c, Granularity granularity) {
  c.quantization.query = c.quantization.key = c.quantization.value = granularity;
  return c;
}

Case packed(Case c) {
  c.batch = 4;
  c.cu_query = {0, 100, 100, 117, 130};
  c.cu_key = {0, 1, 76, 76, 130};
  return c;
}

Case used(Case c) {
  if (c.cu_key.empty()) {
    c.batch = 3;
    c.used_query = {100, 0, 63};
    c.used_key = {17, 75, 0};
  } else {
    c.used_query = {99, 0, 17, 1};
    c.used_key = {0, 70, 0, 54};
  }
  return c;
}

void dims(std::vector<Case>& list) {
  for (const int64_t dim : {64, 96, 128, 192, 256, 8, 24, 80}) {
    Case c = basic("dims", dim);
    c.name += std::to_string(dim);
    c.quantization.hadamard = true;
    list.push_back(c);
    c.name += "_fp16_mean_rows";
    c.dtype = tandem::Dtype::fp16;
    c.quantization.value_mean = true;
    c.quantization.value_layout = tandem::ValueLayout::rows;
    c.value_offset = 1;
    list.push_back(c);
  }
}

void granularities(std::vector<Case>& list) {
  for (const bool mean : {false, true}) {
    for (const Granularity granularity : {Granularity::tensor, Granularity::head, Granularity::block}) {
      Case c = with(basic("", 64), granularity);
      c.keys = 300;
      c.name = std::string("granularity") + std::to_string(static_cast<int>(granularity)) + (mean ? "_mean" : "");
      c.batch = 2;
      c.quantization.value_mean = mean;
      c.quantization.hadamard = true;
      c.value_offset = 0.5F;
      list.push_back(c);
      Case p = packed(c);
      p.name += "_packed";
      list.push_back(p);
      p = used(p);
      p.name += "_used";
      list.push_back(p);
      c = used(c);
      c.keys = 75;
      c.name += "_used";
      list.push_back(c);
      if (granularity == Granularity::block) continue;
      Case given = basic("", 128);
      given = with(given, granularity);
      given.name = std::string("amax") + std::to_string(static_cast<int>(granularity)) + (mean ? "_mean" : "");
      given.batch = 2;
      given.quantization.value_mean = mean;
      given.quantization.amax = true;
      list.push_back(given);
    }
  }
}

/// With the caller's mean: nothing is read first for scales of blocks, or where amax is given too.
void known_means(std::vector<Case>& list) {
  for (const Granularity granularity : {Granularity::tensor, Granularity::head, Granularity::block}) {
    for (const bool amax : {false, true}) {
      Case c = with(basic("", 72), granularity);
      c.name = std::string("known_mean") + std::to_string(static_cast<int>(granularity)) + (amax ? "_amax" : "");
      c.batch = 2;
      c.value_offset = 0.5F;
      c.quantization.value_mean = c.quantization.known_mean = true;
      c.quantization.amax = amax && granularity != Granularity::block;
      if (amax) c.quantization.value_layout = tandem::ValueLayout::rows;
      list.push_back(c);
      c = used(packed(c));
      c.name += "_packed_used";
      list.push_back(c);
    }
  }
}

void ropes(std::vector<Case>& list) {
  for (const bool interleaved : {false, true}) {
    for (const int dims : {128, 64, 32, 20, 2}) {
      Case c = basic("", 128);
      c.name = std::string("rope") + std::to_string(dims) + (interleaved ? "_interleaved" : "");
      c.rope = {dims, interleaved, dims != 64};
      c.quantization.hadamard = dims % 64 == 0;
      c.batch = 2;
      list.push_back(c);
    }
    Case c = basic("", 96);
    c.name = interleaved ? "rope96_interleaved" : "rope96";
    c.rope = {96, interleaved, true};
    c.int8 = true;
    list.push_back(packed(c));
  }
}

void layouts(std::vector<Case>& list) {
  for (const Layout layout : {Layout::head_major, Layout::gaps}) {
    for (const Layout target : {Layout::contiguous, layout}) {
      Case c = basic("", 64);
      c.name =
          std::string("layout") + std::to_string(static_cast<int>(layout)) + std::to_string(static_cast<int>(target));
      c.layout = layout;
      c.target_layout = target;
      c.batch = 2;
      c.quantization.value_mean = true;
      list.push_back(c);
      c.name += "_packed_rows";
      c.quantization.value_layout = tandem::ValueLayout::rows;
      c.rope = {32, false, false};
      list.push_back(packed(c));
    }
  }
}

void specials(std::vector<Case>& list) {
  const struct {
    Special special;
    const char* name;
  } all[] = {{Special::zeros, "L1_zeros"},
             {Special::tiny, "tiny"},
             {Special::infinite, "L5_infinite"},
             {Special::nan, "L5_nan"},
             {Special::huge, "huge"}};
  for (const auto& [special, name] : all) {
    for (const bool int8 : {false, true}) {
      for (const Granularity granularity : {Granularity::block, Granularity::head}) {
        Case c = with(basic(name, 64), granularity);
        c.name += int8 ? "_int8" : "_e4m3";
        c.name += granularity == Granularity::head ? "_head" : "";
        c.special = special;
        c.int8 = int8;
        c.quantization.value_mean = int8 && special != Special::huge;
        list.push_back(c);
      }
    }
  }
}

}  // namespace

Case many_heads(const char* name, int64_t rows) {
  Case c = basic(name, 64);
  c.batch = 16;
  c.queries = c.keys = rows;
  c.query_heads = c.key_heads = 6;
  c.rope = {64, false, false};
  c.quantization.hadamard = true;
  return c;
}

std::vector<Case> cases() {
  std::vector<Case> list;
  dims(list);
  granularities(list);
  known_means(list);
  ropes(list);
  layouts(list);
  specials(list);
  // Blocks that don't fit into registers at once, and a single tensor.
  Case large = basic("large_blocks", 256);
  large.queries = 400;
  large.keys = 333;
  large.query_heads = large.key_heads = 1;
  large.quantization.query_rows = 192;
  large.quantization.key_rows = 176;
  large.quantization.value_rows = 320;
  large.quantization.hadamard = true;
  list.push_back(large);
  list.push_back(many_heads("many_heads", 40));
  Case one = packed(basic("value_alone", 128));
  one.query = one.key = false;
  one.cu_query = {};
  list.push_back(one);
  one = packed(basic("query_alone", 128));
  one.key = one.value = false;
  one.cu_key = {};
  list.push_back(one);
  return list;
}

}  // namespace quantize_support

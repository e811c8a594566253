// Jobs: specs from tensors, copies to and from the device, FLOP counts.
#include "tools/job.hpp"

#include <algorithm>
#include <cstring>

#include "tools/failure.hpp"

namespace tandem::tools {
namespace {

constexpr auto none = Role::Use::none, read = Role::Use::read, written = Role::Use::written;
constexpr Role all_roles[] = {
    {"query", &Job::query, &Arguments::query, &Problem::query, read, read, read},
    {"key", &Job::key, &Arguments::key, &Problem::key, read, read, read},
    {"value", &Job::value, &Arguments::value, &Problem::value, read, read, read},
    {"out", &Job::out, &Arguments::out, &Problem::out, written, read, none},
    {"lse", &Job::lse, &Arguments::lse, &Problem::lse, written, read, none},
    {"cu_query", &Job::cu_query, &Arguments::cu_query, nullptr, read, read, read},
    {"cu_key", &Job::cu_key, &Arguments::cu_key, nullptr, read, read, read},
    {"used_query", &Job::used_query, &Arguments::used_query, nullptr, read, read, read},
    {"used_key", &Job::used_key, &Arguments::used_key, nullptr, read, read, read},
    {"sinks", &Job::sinks, &Arguments::sinks, nullptr, read, read, none},
    {"grad_out", &Job::grad_out, &Arguments::grad_out, &Problem::grad_out, none, read, none},
    {"grad_query", &Job::grad_query, &Arguments::grad_query, &Problem::grad_query, none, written, none},
    {"grad_key", &Job::grad_key, &Arguments::grad_key, &Problem::grad_key, none, written, none},
    {"grad_value", &Job::grad_value, &Arguments::grad_value, &Problem::grad_value, none, written, none},
    {"quantized_query", &Job::quantized_query, &Arguments::quantized_query, &Problem::quantized_query, none, none,
     written},
    {"quantized_key", &Job::quantized_key, &Arguments::quantized_key, &Problem::quantized_key, none, none, written},
    {"quantized_value", &Job::quantized_value, &Arguments::quantized_value, &Problem::quantized_value, none, none,
     written},
    {"query_scale", &Job::query_scale, &Arguments::query_scale, &Problem::query_scale, read, none, written},
    {"key_scale", &Job::key_scale, &Arguments::key_scale, &Problem::key_scale, read, none, written},
    {"value_scale", &Job::value_scale, &Arguments::value_scale, &Problem::value_scale, read, none, written},
    {"value_mean", &Job::value_mean, &Arguments::value_mean, &Problem::value_mean, read, none, written},
    {"rope_cos", &Job::rope_cos, &Arguments::rope_cos, &Problem::rope_cos, none, none, read},
    {"rope_sin", &Job::rope_sin, &Arguments::rope_sin, &Problem::rope_sin, none, none, read},
    {"out_scale", &Job::out_scale, &Arguments::out_scale, nullptr, read, none, none},
};

std::vector<int64_t> values_of(const Tensor& tensor, const char* what) { return integers(array_of(tensor), what); }

/// One side (query or key) of the sequences.
void side(const Tensor& tensor, const Tensor& cumulative, const Tensor& used, std::vector<int64_t>* begin,
          std::vector<int64_t>* count, int64_t* longest) {
  if (cumulative.present()) {
    const auto ends = values_of(cumulative, "cumulative lengths");
    for (size_t i = 0; i + 1 < ends.size(); ++i) {
      begin->push_back(ends[i]);
      count->push_back(ends[i + 1] - ends[i]);
    }
  } else {
    begin->assign(static_cast<size_t>(tensor.spec.size[0]), 0);
    count->assign(static_cast<size_t>(tensor.spec.size[0]), tensor.spec.size[1]);
  }
  *longest = count->empty() ? 0 : std::max<int64_t>(0, *std::max_element(count->begin(), count->end()));
  if (!used.present()) return;
  const auto lengths = values_of(used, "used lengths");
  for (size_t i = 0; i < std::min(lengths.size(), count->size()); ++i) {
    (*count)[i] = std::clamp<int64_t>(lengths[i], 0, std::max<int64_t>((*count)[i], 0));
  }
}

}  // namespace

std::span<const Role> roles() { return all_roles; }

Sequences sequences(const Job& job) {
  Sequences s;
  s.packed_query = job.cu_query.present();
  s.packed_key = job.cu_key.present();
  side(job.query, job.cu_query, job.used_query, &s.query_begin, &s.query_count, &s.max_query);
  side(job.key, job.cu_key, job.used_key, &s.key_begin, &s.key_count, &s.max_key);
  s.batch = static_cast<int64_t>(std::min(s.query_count.size(), s.key_count.size()));
  return s;
}

Problem problem_of(const Job& job, Device device) {
  Problem problem = job.problem;
  for (const Role& role : roles()) {
    if (role.spec != nullptr && role.used(job.pass) && (job.*role.tensor).present()) {
      problem.*role.spec = on((job.*role.tensor).spec, device);
    }
  }
  problem.sinks = job.sinks.present() && job.pass != Pass::quantize;
  Lengths& lengths = problem.lengths;
  lengths.packed_query = job.cu_query.present();
  lengths.packed_key = job.cu_key.present();
  lengths.used_query = job.used_query.present();
  lengths.used_key = job.used_key.present();
  if (lengths.packed_query || lengths.packed_key) {
    const Sequences s = sequences(job);
    if (lengths.batch < 0) {
      lengths.batch = static_cast<int64_t>(lengths.packed_query ? s.query_count.size() : s.key_count.size());
    }
    if (lengths.packed_query && lengths.max_query < 0) lengths.max_query = s.max_query;
    if (lengths.packed_key && lengths.max_key < 0) lengths.max_key = s.max_key;
  }
  return problem;
}

Execution::Execution(const Job& job, Plan plan, Memory& memory)
    : pass_(job.pass), plan_(std::move(plan)), memory_(memory) {
  for (const Role& role : roles()) {
    const Tensor& tensor = job.*role.tensor;
    buffers_.emplace_back();
    if (!tensor.present() || !role.used(pass_)) continue;
    buffers_.back() = Buffer(memory, tensor.bytes.size());
    memory.upload(buffers_.back().data(), tensor.bytes.data(), tensor.bytes.size());
    TensorView& view = arguments_.*role.view;
    view = tensor.view(buffers_.back().data());
    view.spec.device = memory.device();
  }
  const Bytes noise(plan_.workspace_bytes(), poison);
  workspace_ = Buffer(memory, noise.size());
  memory.upload(workspace_.data(), noise.data(), noise.size());
}

Status Execution::run() { return plan_.run(arguments_, workspace_.data(), workspace_.bytes(), memory_.stream()); }

void Execution::fetch(Job& job) const {
  for (size_t i = 0; i < roles().size(); ++i) {
    const Role& role = roles()[i];
    Tensor& tensor = job.*role.tensor;
    if (tensor.present() && role.written(pass_)) {
      memory_.download(tensor.bytes.data(), buffers_[i].data(), tensor.bytes.size());
    }
  }
}

double visible_scores(const Job& job) {
  const Sequences s = sequences(job);
  const Mask& mask = job.problem.mask;
  double scores = 0;
  for (size_t b = 0; b < static_cast<size_t>(s.batch); ++b) {
    const int64_t keys = s.key_count[b], diagonal = mask.diagonal.value_or(keys - s.query_count[b]);
    const int64_t right = mask.causal ? 0 : mask.right;
    for (int64_t i = 0; i < s.query_count[b]; ++i) {
      const int64_t at = i + diagonal;
      const int64_t begin = mask.left < 0 ? 0 : std::max<int64_t>(0, at - mask.left);
      const int64_t end = right < 0 || right >= keys - at ? keys : at + right + 1;
      scores += static_cast<double>(std::max<int64_t>(0, end - begin));
    }
  }
  return scores * static_cast<double>(job.query.spec.size[static_cast<size_t>(job.query.spec.rank - 2)]);
}

double flop(const Job& job) {
  const auto dim = [](const Tensor& t) {
    return static_cast<double>(t.spec.size[static_cast<size_t>(t.spec.rank - 1)]);
  };
  return visible_scores(job) * 2 * (dim(job.query) + dim(job.out.present() ? job.out : job.value)) *
         (job.pass == Pass::backward ? 2.5 : 1.0);
}

}  // namespace tandem::tools

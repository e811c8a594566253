/* Attention on the CPU with Tandem's C interface: describe the problem with DLPack tensors, make a plan, run it. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "tandem/tandem.h"

enum { BATCH = 1, SEQLEN = 256, QUERY_HEADS = 4, KEY_HEADS = 2, HEAD_DIM = 64 };
enum { QUERY_COUNT = BATCH * SEQLEN * QUERY_HEADS * HEAD_DIM, KEY_COUNT = BATCH * SEQLEN * KEY_HEADS * HEAD_DIM };

static float query_data[QUERY_COUNT], key_data[KEY_COUNT], value_data[KEY_COUNT], out_data[QUERY_COUNT];

static int fail(const char* what, const tandem_error* error) {
  fprintf(stderr, "%s: %s (%s)\n", what, error->message, error->argument);
  return 1;
}

static void fill(float* data, int count) {
  for (int i = 0; i < count; ++i) data[i] = (float)rand() / (float)RAND_MAX - 0.5f;
}

/* A row-major float32 tensor (batch, seqlen, heads, head_dim) in CPU memory; `shape` must outlive it. */
static DLTensor cpu_tensor(float* data, int64_t shape[4]) {
  DLTensor tensor = {0};
  tensor.data = data;
  tensor.device.device_type = kDLCPU;
  tensor.ndim = 4;
  tensor.dtype.code = kDLFloat;
  tensor.dtype.bits = 32;
  tensor.dtype.lanes = 1;
  tensor.shape = shape; /* strides stay NULL: row-major */
  return tensor;
}

int main(void) {
  fill(query_data, QUERY_COUNT);
  fill(key_data, KEY_COUNT);
  fill(value_data, KEY_COUNT);
  int64_t query_shape[4] = {BATCH, SEQLEN, QUERY_HEADS, HEAD_DIM}, key_shape[4] = {BATCH, SEQLEN, KEY_HEADS, HEAD_DIM};
  const DLTensor query = cpu_tensor(query_data, query_shape), out = cpu_tensor(out_data, query_shape);
  const DLTensor key = cpu_tensor(key_data, key_shape), value = cpu_tensor(value_data, key_shape);

  tandem_problem problem;
  tandem_problem_init(&problem, sizeof problem);
  problem.query = &query;
  problem.key = &key;
  problem.value = &value;
  problem.mask_causal = 1;

  tandem_plan* plan = NULL;
  tandem_error error;
  if (tandem_plan_create(TANDEM_FORWARD, &problem, &plan, &error) != TANDEM_OK) return fail("plan", &error);
  char text[2048];
  tandem_plan_describe(plan, text, sizeof text);
  printf("%s\n", text);

  tandem_arguments arguments;
  tandem_arguments_init(&arguments, sizeof arguments);
  arguments.query = &query;
  arguments.key = &key;
  arguments.value = &value;
  arguments.out = &out;
  const size_t bytes = tandem_plan_workspace_bytes(plan);
  void* workspace = aligned_alloc(256, (bytes + 255) / 256 * 256); /* of any content, 256-byte aligned */
  const int32_t code = tandem_plan_run(plan, &arguments, workspace, bytes, NULL, &error);
  free(workspace);
  tandem_plan_destroy(plan);
  if (code != TANDEM_OK) return fail("run", &error);

  /* The first query sees the first key alone, so its output is that key's value. */
  printf("out[0] = %.6f, value[0] = %.6f\n", out_data[0], value_data[0]);
  return out_data[0] == value_data[0] ? 0 : 1;
}

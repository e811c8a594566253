/* 8-bit attention on the CPU with Tandem's C interface: the forward plan says how many rows share a scale, the
 * quantiser makes 8-bit tensors from bf16 ones, and attention runs on them. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tandem/tandem.h"

enum { SEQLEN = 256, HEADS = 4, HEAD_DIM = 64, GROUPS = SEQLEN / 16, COUNT = SEQLEN * HEADS * HEAD_DIM };
enum { CODE_E4M3 = 10 }; /* DLPack's, since its version 1.1 */

static uint16_t query_data[COUNT], key_data[COUNT], value_data[COUNT], out_data[COUNT];
static uint8_t query8_data[COUNT], key8_data[COUNT], value8_data[COUNT];
static float query_scale_data[HEADS * SEQLEN], key_scale_data[HEADS * SEQLEN], value_scale_data[HEADS * SEQLEN];

static int fail(const char* what, const tandem_error* error) {
  fprintf(stderr, "%s: %s (%s)\n", what, error->message, error->argument);
  return 1;
}

static float from_bf16(uint16_t x) {
  const uint32_t bits = (uint32_t)x << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* Numbers of -1/2 to 1/2; the last 16 bits of a float are cut off, which rounds towards 0. */
static void fill(uint16_t* data) {
  for (int i = 0; i < COUNT; ++i) {
    const float value = (float)rand() / (float)RAND_MAX - 0.5f;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    data[i] = (uint16_t)(bits >> 16);
  }
}

/* A row-major tensor in CPU memory; `shape` must outlive it. */
static DLTensor cpu_tensor(void* data, uint8_t code, uint8_t bits, int32_t rank, int64_t* shape) {
  DLTensor tensor = {0};
  tensor.data = data;
  tensor.device.device_type = kDLCPU;
  tensor.ndim = rank;
  tensor.dtype.code = code;
  tensor.dtype.bits = bits;
  tensor.dtype.lanes = 1;
  tensor.shape = shape;
  return tensor;
}

static int32_t run(const tandem_plan* plan, const tandem_arguments* arguments, tandem_error* error) {
  const size_t bytes = tandem_plan_workspace_bytes(plan);
  void* workspace = aligned_alloc(256, (bytes + 256) / 256 * 256);
  const int32_t code = tandem_plan_run(plan, arguments, workspace, bytes, NULL, error);
  free(workspace);
  return code;
}

int main(void) {
  fill(query_data);
  fill(key_data);
  fill(value_data);
  int64_t shape[4] = {1, SEQLEN, HEADS, HEAD_DIM}, packed_shape[5] = {1, HEADS, GROUPS, HEAD_DIM, 16};
  const DLTensor query = cpu_tensor(query_data, kDLBfloat, 16, 4, shape);
  const DLTensor key = cpu_tensor(key_data, kDLBfloat, 16, 4, shape);
  const DLTensor value = cpu_tensor(value_data, kDLBfloat, 16, 4, shape);
  const DLTensor out = cpu_tensor(out_data, kDLBfloat, 16, 4, shape);
  const DLTensor query8 = cpu_tensor(query8_data, CODE_E4M3, 8, 4, shape);
  const DLTensor key8 = cpu_tensor(key8_data, CODE_E4M3, 8, 4, shape);
  const DLTensor value8 = cpu_tensor(value8_data, CODE_E4M3, 8, 5, packed_shape);

  tandem_problem problem;
  tandem_error error;
  tandem_plan *forward = NULL, *quantiser = NULL;
  tandem_problem_init(&problem, sizeof problem);
  problem.query = &query8;
  problem.key = &key8;
  problem.value = &value8;
  problem.mask_causal = 1;
  if (tandem_plan_create(TANDEM_FORWARD, &problem, &forward, &error) != TANDEM_OK) return fail("forward plan", &error);
  int32_t query_rows, key_rows, value_rows;
  tandem_plan_block_rows(forward, &query_rows, &key_rows, &value_rows);
  printf("rows that share a scale: query %d, key %d, value %d\n", (int)query_rows, (int)key_rows, (int)value_rows);

  tandem_problem_init(&problem, sizeof problem);
  problem.query = &query;
  problem.key = &key;
  problem.value = &value;
  problem.quantization_query_rows = query_rows;
  problem.quantization_key_rows = key_rows;
  problem.quantization_value_rows = value_rows;
  problem.quantization_hadamard = 1;
  if (tandem_plan_create(TANDEM_QUANTIZE, &problem, &quantiser, &error) != TANDEM_OK) return fail("quantiser", &error);

  int64_t query_blocks[3] = {1, HEADS, (SEQLEN + query_rows - 1) / query_rows};
  int64_t key_blocks[3] = {1, HEADS, (SEQLEN + key_rows - 1) / key_rows};
  int64_t value_blocks[3] = {1, HEADS, (SEQLEN + value_rows - 1) / value_rows};
  const DLTensor query_scale = cpu_tensor(query_scale_data, kDLFloat, 32, 3, query_blocks);
  const DLTensor key_scale = cpu_tensor(key_scale_data, kDLFloat, 32, 3, key_blocks);
  const DLTensor value_scale = cpu_tensor(value_scale_data, kDLFloat, 32, 3, value_blocks);

  tandem_arguments arguments;
  tandem_arguments_init(&arguments, sizeof arguments);
  arguments.query_scale = &query_scale;
  arguments.key_scale = &key_scale;
  arguments.value_scale = &value_scale;
  arguments.query = &query;
  arguments.key = &key;
  arguments.value = &value;
  arguments.quantized_query = &query8;
  arguments.quantized_key = &key8;
  arguments.quantized_value = &value8;
  if (run(quantiser, &arguments, &error) != TANDEM_OK) return fail("quantise", &error);

  arguments.quantized_query = arguments.quantized_key = arguments.quantized_value = NULL;
  arguments.query = &query8;
  arguments.key = &key8;
  arguments.value = &value8;
  arguments.out = &out;
  if (run(forward, &arguments, &error) != TANDEM_OK) return fail("attend", &error);
  tandem_plan_destroy(forward);
  tandem_plan_destroy(quantiser);

  /* The first query sees the first key alone, so its output is that key's value, up to two roundings to 8 bits. */
  const float first = from_bf16(out_data[0]), exact = from_bf16(value_data[0]);
  printf("out[0] = %.4f, value[0] = %.4f\n", first, exact);
  return fabsf(first - exact) <= 0.15f * fabsf(exact) + 0.01f ? 0 : 1;
}

/* Attention on a Hopper GPU from C, with memory and a stream of the program's own. Running only puts work on the
 * stream. */
#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "tandem/tandem.h"

enum { BATCH = 2, SEQLEN = 1024, HEADS = 16, HEAD_DIM = 128, COUNT = BATCH * SEQLEN * HEADS * HEAD_DIM };
static const size_t tensor_bytes = (size_t)COUNT * sizeof(uint16_t);

static int fail(const char* what, const tandem_error* error) {
  fprintf(stderr, "%s: %s (%s)\n", what, error->message, error->argument);
  return 1;
}

/* Small bfloat16 numbers: the sign, exponents of 2^-7 to 2^-1, and a random mantissa. */
static void fill(uint16_t* data) {
  for (int i = 0; i < COUNT; ++i) data[i] = (uint16_t)((rand() & 1) << 15 | (120 + rand() % 7) << 7 | (rand() & 127));
}

/* A row-major bfloat16 tensor (batch, seqlen, heads, head_dim) on the first GPU; `shape` must outlive it. */
static DLTensor cuda_tensor(void* data, int64_t shape[4]) {
  DLTensor tensor = {0};
  tensor.data = data;
  tensor.device.device_type = kDLCUDA;
  tensor.ndim = 4;
  tensor.dtype.code = kDLBfloat;
  tensor.dtype.bits = 16;
  tensor.dtype.lanes = 1;
  tensor.shape = shape; /* strides stay NULL: row-major */
  return tensor;
}

/* Copies query, key and value to the GPU, runs the plan and copies its output back, all on one stream. */
static int run(const tandem_plan* plan, tandem_arguments* arguments, uint16_t* host[4], cudaStream_t stream) {
  const DLTensor* inputs[3] = {arguments->query, arguments->key, arguments->value};
  const size_t bytes = tandem_plan_workspace_bytes(plan);
  void* workspace = NULL;
  if (bytes > 0 && cudaMalloc(&workspace, bytes) != cudaSuccess) return 1;
  for (int i = 0; i < 3; ++i) cudaMemcpyAsync(inputs[i]->data, host[i], tensor_bytes, cudaMemcpyHostToDevice, stream);
  tandem_error error;
  const int32_t code = tandem_plan_run(plan, arguments, workspace, bytes, stream, &error);
  if (code == TANDEM_OK) cudaMemcpyAsync(host[3], arguments->out->data, tensor_bytes, cudaMemcpyDeviceToHost, stream);
  const cudaError_t cuda = cudaStreamSynchronize(stream);
  cudaFree(workspace);
  if (code != TANDEM_OK) return fail("run", &error);
  if (cuda != cudaSuccess) fprintf(stderr, "the stream: %s\n", cudaGetErrorString(cuda));
  return cuda != cudaSuccess;
}

int main(void) {
  int64_t shape[4] = {BATCH, SEQLEN, HEADS, HEAD_DIM};
  DLTensor tensors[4]; /* query, key, value, out */
  for (int i = 0; i < 4; ++i) tensors[i] = cuda_tensor(NULL, shape);
  tandem_problem problem;
  tandem_problem_init(&problem, sizeof problem);
  problem.query = &tensors[0];
  problem.key = &tensors[1];
  problem.value = &tensors[2];
  problem.mask_causal = 1;

  tandem_plan* plan = NULL;
  tandem_error error;
  if (tandem_plan_create(TANDEM_FORWARD, &problem, &plan, &error) != TANDEM_OK) return fail("plan", &error);

  uint16_t* host[4];
  cudaStream_t stream = NULL;
  int bad = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess;
  for (int i = 0; i < 4; ++i) {
    host[i] = malloc(tensor_bytes);
    bad |= host[i] == NULL || cudaMalloc(&tensors[i].data, tensor_bytes) != cudaSuccess;
    if (host[i] != NULL) fill(host[i]);
  }
  tandem_arguments arguments;
  tandem_arguments_init(&arguments, sizeof arguments);
  arguments.query = &tensors[0];
  arguments.key = &tensors[1];
  arguments.value = &tensors[2];
  arguments.out = &tensors[3];
  if (bad) fprintf(stderr, "no memory for the tensors\n");
  bad = bad || run(plan, &arguments, host, stream);

  /* The first query sees the first key alone, so its output is that key's value, bit for bit. */
  if (!bad) {
    printf("out[0] = 0x%04x, value[0] = 0x%04x\n", host[3][0], host[2][0]);
    bad = host[3][0] != host[2][0];
  }
  for (int i = 0; i < 4; ++i) {
    cudaFree(tensors[i].data);
    free(host[i]);
  }
  if (stream != NULL) cudaStreamDestroy(stream);
  tandem_plan_destroy(plan);
  return bad;
}

/* The C header in a C99 program, linked with the shared library: what a C user writes. Exits with the number of the
 * line that failed. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tandem/tandem.h"

#define CHECK(condition)                                                         \
  do {                                                                           \
    if (!(condition)) {                                                          \
      fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, error.message); \
      return 1;                                                                  \
    }                                                                            \
  } while (0)

int main(void) {
  tandem_error error = {0, "", ""};
  float query[2 * 8], key[3 * 8], value[3 * 8], out[2 * 8], lse[2];
  int64_t query_shape[4] = {1, 2, 1, 8}, key_shape[4] = {1, 3, 1, 8}, lse_shape[3] = {1, 1, 2};
  DLTensor query_tensor = {query, {kDLCPU, 0}, 4, {kDLFloat, 32, 1}, query_shape, NULL, 0};
  DLTensor key_tensor = {key, {kDLCPU, 0}, 4, {kDLFloat, 32, 1}, key_shape, NULL, 0};
  DLTensor value_tensor = {value, {kDLCPU, 0}, 4, {kDLFloat, 32, 1}, key_shape, NULL, 0};
  DLTensor out_tensor = {out, {kDLCPU, 0}, 4, {kDLFloat, 32, 1}, query_shape, NULL, 0};
  DLTensor lse_tensor = {lse, {kDLCPU, 0}, 3, {kDLFloat, 32, 1}, lse_shape, NULL, 0};
  tandem_problem problem;
  tandem_arguments arguments;
  tandem_plan* plan = NULL;
  unsigned char *memory, *workspace;
  size_t bytes;
  int i;

  CHECK(strcmp(tandem_version(), TANDEM_VERSION) == 0);
  tandem_problem_init(&problem, sizeof problem);
  problem.query = &query_tensor;
  problem.key = &key_tensor;
  problem.value = &value_tensor;
  problem.lse = &lse_tensor;
  problem.alignment = 4;
  problem.mask_causal = 1;

  problem.softcap = -1;
  CHECK(tandem_plan_create(TANDEM_FORWARD, &problem, &plan, &error) == TANDEM_INVALID_ARGUMENT);
  CHECK(plan == NULL && strcmp(error.argument, "softcap") == 0);
  problem.softcap = 0;

  if (tandem_available(TANDEM_BACKEND_CPU, &error) != TANDEM_OK) {
    printf("not run: %s\n", error.message);
    return 0;
  }
  CHECK(tandem_plan_create(TANDEM_FORWARD, &problem, &plan, &error) == TANDEM_OK);
  for (i = 0; i < 16; ++i) query[i] = 0;
  for (i = 0; i < 24; ++i) key[i] = value[i] = (float)(i / 8);
  tandem_arguments_init(&arguments, sizeof arguments);
  arguments.query = &query_tensor;
  arguments.key = &key_tensor;
  arguments.value = &value_tensor;
  arguments.out = &out_tensor;
  arguments.lse = &lse_tensor;
  bytes = tandem_plan_workspace_bytes(plan);
  memory = malloc(bytes + 256);
  CHECK(memory != NULL);
  workspace = memory + (256 - (uintptr_t)memory % 256);
  CHECK(tandem_plan_run(plan, &arguments, workspace, bytes, NULL, &error) == TANDEM_OK);
  /* The mask aligns to the bottom right: row 0 sees keys 0 and 1, row 1 sees all three. */
  CHECK(out[0] > 0.499f && out[0] < 0.501f && out[8] > 0.999f && out[8] < 1.001f);
  CHECK(lse[0] > 0.6931f && lse[0] < 0.6932f && lse[1] > 1.0986f && lse[1] < 1.0987f);
  free(memory);
  tandem_plan_destroy(plan);
  return 0;
}

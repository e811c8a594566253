/* The C interface of Tandem (C99): the same plan and run as tandem.hpp, which explains each field; tensors are
 * DLPack's.
 *
 *   tandem_problem problem;
 *   tandem_problem_init(&problem, sizeof problem);
 *   problem.query = &query; problem.key = &key; problem.value = &value;        // DLTensor; their data is not looked at
 *   tandem_plan* plan; tandem_error error;
 *   if (tandem_plan_create(TANDEM_FORWARD, &problem, &plan, &error) != TANDEM_OK) puts(error.message);
 *   tandem_arguments arguments;
 *   tandem_arguments_init(&arguments, sizeof arguments);
 *   arguments.query = &query; ...; arguments.out = &out;
 *   tandem_plan_run(plan, &arguments, workspace, tandem_plan_workspace_bytes(plan), stream, &error);
 *   tandem_plan_destroy(plan);
 *
 * Nothing here throws, aborts or prints. Functions that can fail return a tandem_code and fill the error they are
 * given, which may be NULL. Structs begin with their size as the caller knows it, and fields are only ever appended, so
 * that a program runs with later libraries, and with earlier ones as long as it leaves fields unknown there at zero.
 */
#ifndef TANDEM_TANDEM_H
#define TANDEM_TANDEM_H

#include <dlpack/dlpack.h>
#include <stddef.h>
#include <stdint.h>

#include "tandem/export.h"
#include "tandem/version.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------------------------------- errors */

typedef enum tandem_code {
  TANDEM_OK = 0,
  TANDEM_INVALID_ARGUMENT = 1, /* wrong whatever the backend; the message says what would be right */
  TANDEM_UNSUPPORTED = 2,      /* right, but this backend or build can't serve it */
  TANDEM_NO_DEVICE = 3,
  TANDEM_OUT_OF_MEMORY = 4,
  TANDEM_DRIVER = 5,  /* the CUDA driver reported an error */
  TANDEM_INTERNAL = 6 /* a fault of Tandem: please report it */
} tandem_code;

/* `argument` is the field at fault as this header spells it ("key", "mask_left"), or empty; `message` is one sentence.
 */
typedef struct tandem_error {
  int32_t code;
  char argument[48];
  char message[460];
} tandem_error;

/* "invalid argument" and so on; "unknown" for other numbers. */
TANDEM_EXPORT const char* tandem_code_name(int32_t code);

/* ------------------------------------------------------------------------------------------------------ problem */

typedef enum tandem_pass {
  TANDEM_FORWARD = 0,
  TANDEM_BACKWARD = 1,
  TANDEM_QUANTIZE = 2,
  TANDEM_APPEND = 3,
  TANDEM_MERGE = 4
} tandem_pass;

/* How many elements share a scale, and where a packed value lies: see tandem::Granularity and tandem::ValueLayout. */
typedef enum tandem_granularity {
  TANDEM_SCALE_TENSOR = 0,
  TANDEM_SCALE_HEAD = 1,
  TANDEM_SCALE_BLOCK = 2
} tandem_granularity;
typedef enum tandem_value_layout { TANDEM_VALUE_ROWS = 0, TANDEM_VALUE_PACKED = 1 } tandem_value_layout;

typedef enum tandem_backend {
  TANDEM_BACKEND_AUTOMATIC = 0,
  TANDEM_BACKEND_CPU = 1,
  TANDEM_BACKEND_SM90 = 2,
  TANDEM_BACKEND_EMULATOR = 3
} tandem_backend;

/* Runs task(task_context, 0) to task(task_context, count - 1) on threads of the caller's own, in any order and at the
 * same time where it can, and returns when all are done. */
typedef void (*tandem_task)(void* task_context, int64_t index);
typedef void (*tandem_parallel)(void* context, int64_t count, tandem_task task, void* task_context);

/* What a plan depends on. Tensors: dtype float32 or float16 (kDLFloat) or bfloat16 (kDLBfloat); on kDLCPU or
 * kDLCUDAHost (CPU), kDLCUDA or kDLCUDAManaged (GPU); strides in elements, NULL for row-major. Absent is NULL. They are
 * read during the call alone; their data pointers aren't used. Flags are 0 or 1. */
typedef struct tandem_problem {
  size_t struct_size;
  const DLTensor *query, *key, *value; /* (batch, seqlen, heads, head_dim), or packed (total, heads, head_dim) */
  const DLTensor* out;                 /* NULL: row-major, of query's dtype */
  const DLTensor* lse; /* float32 (batch, query_heads, seqlen_query), packed (query_heads, total_query) */
  int32_t alignment;   /* bytes to which data pointers are aligned (float32 beside the tensors: 4); 16 by default */
  int32_t has_scale;   /* 0: the scale is 1 / sqrt(head_dim) */
  float scale;
  float softcap; /* 0: none */
  int32_t sinks; /* 1: arguments.sinks joins the softmax's denominator */
  int32_t mask_causal;
  int64_t mask_left, mask_right; /* -1 (default): unlimited */
  int32_t mask_has_diagonal;
  int64_t mask_diagonal;
  int64_t lengths_batch, lengths_max_query, lengths_max_key; /* -1 (default): absent */
  int32_t lengths_packed_query, lengths_packed_key, lengths_used_query, lengths_used_key;
  const DLTensor *grad_out, *grad_query, *grad_key, *grad_value; /* the backward pass */
  int32_t options_backend;                                       /* tandem_backend */
  int32_t options_num_splits;                                    /* 1 by default */
  int32_t options_deterministic, options_batch_invariant, options_check_lengths;
  int32_t options_threads;          /* CPU threads; 0 (default): as many as the machine has */
  tandem_parallel options_executor; /* the caller's own CPU threads, instead; must outlive the plan with its context */
  void* options_executor_context;
  int32_t options_executor_concurrency; /* how many tasks options_executor runs at once */
  uint64_t options_emulator_seed;
  /* 8-bit attention: how the tensors are (TANDEM_FORWARD) or shall be (TANDEM_QUANTIZE) quantised. Quantising reads
   * query, key and value, each of them optional, and writes the quantized_ tensors and scales. */
  int32_t quantization_query, quantization_key, quantization_value; /* tandem_granularity; blocks by default */
  int32_t quantization_query_rows, quantization_key_rows;           /* of a block; 0: see tandem_plan_block_rows */
  int32_t quantization_value_rows;
  int32_t quantization_value_layout; /* tandem_value_layout; packed by default */
  int32_t quantization_value_mean, quantization_promote /* 1 by default */, quantization_hadamard, quantization_amax;
  int32_t rope_dims, rope_interleaved, rope_positions;
  uint64_t quantization_sign_seed;
  const DLTensor *quantized_query, *quantized_key, *quantized_value;
  const DLTensor *query_scale, *key_scale, *value_scale, *value_mean; /* NULL: contiguous */
  const DLTensor *rope_cos, *rope_sin;
  int32_t quantization_known_mean; /* quantising with quantization_value_mean: arguments.value_mean is given */
} tandem_problem;

/* What may change between runs; each tensor with the shape, strides, dtype and device that the plan was made with.
 * cu_ and used_ tensors are int32, contiguous, on the tensors' device: batch + 1 cumulative lengths, batch lengths. On
 * the CPU (on the GPU with options_check_lengths) they are checked: cu_ begins at 0, doesn't decrease, stays within the
 * maxima and ends at the rows of the tensor (cu_key may end before); used_ stays within the sequence. */
typedef struct tandem_arguments {
  size_t struct_size;
  const DLTensor *query, *key, *value, *out, *lse;
  const DLTensor *cu_query, *cu_key, *used_query, *used_key;
  const DLTensor* sinks; /* float32 (query_heads) */
  const DLTensor *grad_out, *grad_query, *grad_key, *grad_value;
  const DLTensor *quantized_query, *quantized_key, *quantized_value;
  const DLTensor *query_scale, *key_scale, *value_scale, *value_mean;
  const DLTensor *query_amax, *key_amax, *value_amax; /* with quantization_amax */
  const DLTensor* out_scale;                          /* float32 (1), for an out of e4m3 */
  const DLTensor *rope_cos, *rope_sin, *position;
} tandem_arguments;

/* Sets the struct's size (pass sizeof) and every field's default. */
TANDEM_EXPORT void tandem_problem_init(tandem_problem* problem, size_t struct_size);
TANDEM_EXPORT void tandem_arguments_init(tandem_arguments* arguments, size_t struct_size);

/* ------------------------------------------------------------------------------------------------- plan and run */

typedef struct tandem_plan tandem_plan; /* immutable; any thread may run it, at the same time with its own workspace */

/* On failure *plan is NULL. */
TANDEM_EXPORT int32_t tandem_plan_create(int32_t pass, const tandem_problem* problem, tandem_plan** plan,
                                         tandem_error* error);
TANDEM_EXPORT void tandem_plan_destroy(tandem_plan* plan);
/* Bytes of workspace on the tensors' device, 256-byte aligned, of any content. */
TANDEM_EXPORT size_t tandem_plan_workspace_bytes(const tandem_plan* plan);
/* The backend that serves the plan; never automatic. */
TANDEM_EXPORT int32_t tandem_plan_backend(const tandem_plan* plan);
/* The rows of a block of scales by which 8-bit tensors must be quantised for this plan: the problem's, or the plan's
 * choice. 0 where scales aren't of blocks or the plan isn't of 8-bit attention. */
TANDEM_EXPORT void tandem_plan_block_rows(const tandem_plan* plan, int32_t* query_rows, int32_t* key_rows,
                                          int32_t* value_rows);
/* Writes the plan as text, cut to `bytes` with its ending zero; returns the length of the whole, as snprintf does. */
TANDEM_EXPORT size_t tandem_plan_describe(const tandem_plan* plan, char* buffer, size_t bytes);
/* `stream` is a cudaStream_t or CUstream; the CPU ignores it and returns when done. */
TANDEM_EXPORT int32_t tandem_plan_run(const tandem_plan* plan, const tandem_arguments* arguments, void* workspace,
                                      size_t workspace_bytes, void* stream, tandem_error* error);

/* ----------------------------------------------------------------------------------------- what this build has */

TANDEM_EXPORT const char* tandem_version(void);
TANDEM_EXPORT const char* tandem_backend_name(int32_t backend);
/* Whether a backend can run here and now; if not, the error says why. */
TANDEM_EXPORT int32_t tandem_available(int32_t backend, tandem_error* error);

/* One compiled GPU kernel, as recorded when it was built; known without a GPU. */
typedef struct tandem_kernel {
  size_t struct_size;
  const char *name, *pass, *dtype;
  int32_t head_dim, value_dim;  /* the largest that it serves */
  int32_t tile_query, tile_key; /* rows of a query tile and of a key tile */
  int32_t threads, registers;   /* per block; per thread at launch */
  int32_t shared_bytes, local_bytes;
} tandem_kernel;
TANDEM_EXPORT size_t tandem_kernel_count(void);
/* kernel->struct_size must be set. */
TANDEM_EXPORT int32_t tandem_kernel_info(size_t index, tandem_kernel* kernel, tandem_error* error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif

"""Faults to plant in kernels and parts that forward.py and backward.py leave out: three consumers, the softmax's rare path,
the deterministic order, copies."""
from kinds import ARRIVALS, DEADLOCK, NUMBERS, OUTSIDE, OVERWRITE, RACE, UNINITIALISED, edit

EPILOGUE = "forward/epilogue.cuh"
KERNEL = "forward/kernel.cuh"
SOFTMAX = "math/softmax.cuh"
ORDERED = "backward/ordered.cuh"
CONSUMER = "backward/consumer.cuh"
PRODUCER = "backward/producer.cuh"
SCHEDULER = "backward/scheduler.cuh"
VISITS = "backward/visits.hpp"
COPY = "copy/kernel.cuh"

OF_THREE_CONSUMERS = [
    ("query barriers of the third consumer not initialised", {UNINITIALISED}, [edit(KERNEL, "for (int w = 0; w < config.consumers; ++w) {", "for (int w = 0; w < 2; ++w) {")]),
    ("stages freed by two consumers", {ARRIVALS, OVERWRITE}, [edit(KERNEL, "constexpr int warps = 4 * config.consumers;", "constexpr int warps = 4 * 2;")]),
    ("stages wait for a fourth consumer", {DEADLOCK}, [edit(KERNEL, "constexpr int warps = 4 * config.consumers;", "constexpr int warps = 4 * 4;")]),
    ("third consumer stages its output in the second's buffer", {RACE, OVERWRITE, UNINITIALISED}, [edit(EPILOGUE, "shared.output[consumer][", "shared.output[consumer == 2 ? 1 : consumer][")]),
    ("third consumer stores the second's rows", {NUMBERS, "race in global memory"}, [edit(EPILOGUE, "tile.map_row + tile.row + 64 * consumer,", "tile.map_row + tile.row + 64 * (consumer == 2 ? 1 : consumer),")]),
]

OF_SOFTMAX = [
    ("masked scores count as 0", {NUMBERS}, [edit(SOFTMAX, "return scale_ > 0 ? -infinity : infinity;", "return 0;")]),
    ("a lane's share taken for the row's sum", {NUMBERS}, [edit(SOFTMAX, "sum_lanes(); #pragma unroll", "#pragma unroll")]),
    ("weights of odd columns not summed", {NUMBERS}, [edit(SOFTMAX, "const float p1 = ptx::exp2(ptx::multiply_add(scores[i + 1], scale_, -reference_[r])); sum_[r] += p0; sum_[r] += p1;", "const float p1 = ptx::exp2(ptx::multiply_add(scores[i + 1], scale_, -reference_[r])); sum_[r] += p0;")]),
    ("rescue leaves the output at its old reference", {NUMBERS}, [edit(SOFTMAX, "if constexpr (!is_first) rescale(output, factor[0], factor[1]);", "")]),
    ("rescue leaves the sum at its old reference", {NUMBERS}, [edit(SOFTMAX, "sum_[0] = is_first ? 0.0f : before0 * factor[0];", "sum_[0] = is_first ? 0.0f : before0;")]),
]

OF_ORDER = [
    ("tiles wait for one more than come before them", {DEADLOCK}, [edit(ORDERED, "tile.direction > 0);", "tile.direction > 0) + 1;")]),
    ("first tiles alone announce their part", {DEADLOCK}, [edit(ORDERED, "return params_.deterministic || stores(tile, block);", "return stores(tile, block);")]),
    ("one turn too few awaited", {"race in global memory", NUMBERS}, [edit(VISITS, "return upwards ? tiles.visit.end - 1 - tile :", "return upwards ? tiles.visit.end - 2 - tile :")]),
    ("one turn too many awaited", {DEADLOCK}, [edit(VISITS, "return upwards ? tiles.visit.end - 1 - tile :", "return upwards ? tiles.visit.end - tile :")]),
    ("first parts told as if tiles went downwards", {NUMBERS, "race in global memory", DEADLOCK, UNINITIALISED}, [edit(VISITS, "upwards ? tile + 1 : tile - 1", "tile - 1")]),
    ("tiles launched downwards, so that those awaited come late", {DEADLOCK}, [edit(SCHEDULER, "return params.upwards ? tile :", "return false ? tile :")]),
    ("query blocks from the last on under an order for the other way", {NUMBERS, "race in global memory", DEADLOCK, UNINITIALISED}, [edit(SCHEDULER, "tile.direction = params.upwards ? 1 : -1;", "tile.direction = -1;")]),
    ("part never announced", {DEADLOCK, "race in global memory"}, [edit(PRODUCER, "if (!order_.awaited(*tile_, steps.block())) return;", "return;")]),
    ("late order never hands the turn over", {DEADLOCK}, [edit(CONSUMER, "issue_grad_value(); if (more || consumer_ == 0) give_turn(); issue_grad_key();", "issue_grad_value(); issue_grad_key();")]),
]

OF_COPY = [
    ("last element not copied", {UNINITIALISED}, [edit(COPY, "i < p.elements; i += step", "i < p.elements - 1; i += step")]),
    ("rows and heads exchanged", {NUMBERS, OUTSIDE, UNINITIALISED, "race in global memory"}, [edit(COPY, "p.source[batch * p.from.batch + row * p.from.row + head * p.from.head + column]", "p.source[batch * p.from.batch + row * p.from.head + head * p.from.row + column]")]),
]

BACKWARD = ["backward_prepare", "backward_finish", "copy_16bit"]

GROUPS = [
    {"kernel": "forward_bf16_d64", "others": ["copy_16bit"], "options": "sms=1", "mutations": OF_THREE_CONSUMERS,
     "problems": ["--random 1,600,2,64 --key-heads 1", "--random 1,500,2,64 --causal"]},
    {"kernel": "forward_bf16_d128", "others": ["copy_16bit"], "options": "sms=1", "mutations": OF_SOFTMAX,
     "problems": ["--random 1,200,2,128 --causal", "--random 1,130,2,128 --key-length 700 --scale 8"]},
    {"kernel": "backward_bf16_d64_ordered", "others": ["forward_bf16_d64", *BACKWARD], "options": "sms=2", "mutations": OF_ORDER,
     "problems": ["--random 1,300,2,64 --key-length 500 --backward --deterministic",
                  "--random 1,600,1,64 --causal --backward --deterministic",
                  "--random 1,400,4,64 --key-heads 2 --key-length 500 --causal --backward --deterministic"]},
    {"kernel": "copy_16bit", "others": ["forward_bf16_d64"], "options": "sms=2", "mutations": OF_COPY,
     "tests": ["emulator_sweep EmulatorTensors.MayLieAtOddAddresses"]},
]

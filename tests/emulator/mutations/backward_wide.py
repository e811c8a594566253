"""Faults to plant in the two kernels of the backward beyond d 128: dK and dV by gradient, and dQ by queries."""
from kinds import (ARRIVALS, DEADLOCK, EARLY, EQUIVALENT, IN_FLIGHT, NO_FENCE, NO_PROXY_FENCE, NUMBERS, OVERWRITE, RACE, TOUCHED,
                   UNINITIALISED, edit)

GRADIENT = "backward/consumer_by_gradient.cuh"
KERNEL = "backward/kernel.cuh"
PRODUCER = "backward/producer.cuh"
SCORES = "backward/scores.cuh"
CONSUMER = "backward/query_consumer.cuh"
QUERY_KERNEL = "backward/query_kernel.cuh"
QUERY_PRODUCER = "backward/query_producer.cuh"
BASE = "forward/consumer_base.cuh"
PREPARE = "backward/prepare.cuh"

OF_GRADIENTS = [
    ("weights_full expects three warps", {RACE, ARRIVALS, UNINITIALISED}, [edit(KERNEL, "ptx::init(shared.weights_full[s], 4);", "ptx::init(shared.weights_full[s], 3);")]),
    ("weights_empty expects five warps", {DEADLOCK}, [edit(KERNEL, "ptx::init(shared.weights_empty[s], 4);", "ptx::init(shared.weights_empty[s], 5);")]),
    ("value_empty expects two arrivals", {DEADLOCK}, [edit(KERNEL, "ptx::init(shared.value_empty, by_keys ? warps : 1);", "ptx::init(shared.value_empty, by_keys ? warps : 2);")]),
    ("wait for P left out", {RACE, UNINITIALISED}, [edit(GRADIENT, "ptx::wait(shared_.weights_full[stage(step_)], parity(step_));", "")]),
    ("wait for P's empty buffer left out: the Q of this step came when dK of two steps before was summed, which is behind its P", {EQUIVALENT}, [edit(GRADIENT, "ptx::wait(shared_.weights_empty[stage(step_)], parity(step_) ^ 1);", "")]),
    ("warp's barrier before P is handed over left out", {RACE, UNINITIALISED}, [edit(GRADIENT, "ptx::sync_warp(); if (lane_ != 0) return; if constexpr (of_value) {", "if (lane_ != 0) return; if constexpr (of_value) {")]),
    ("P handed over as the next step's", {NUMBERS, DEADLOCK, RACE, UNINITIALISED, ARRIVALS}, [edit(GRADIENT, "shared_.weights[stage(step_)][k][32 * warp_ + lane_] = {", "shared_.weights[stage(step_ + 1)][k][32 * warp_ + lane_] = {")]),
    ("wait for the first rows left out", {EARLY}, [edit(GRADIENT, "await_scored(step_); ptx::wgmma_fence(scores_, rows_);", "ptx::wgmma_fence(scores_, rows_);")]),
    ("wait for the next rows left out", {EARLY}, [edit(GRADIENT, "await_scored(step_ + 1);", "")]),
    ("fence of the next scores left out", {NO_FENCE}, [edit(GRADIENT, "ptx::wgmma_fence(scores_, rows_); issue_scores(step_ + 1);", "issue_scores(step_ + 1);")]),
    ("rows released before their sum is waited for", {OVERWRITE}, [edit(GRADIENT, "ptx::wgmma_wait<1>(sum_, operand_); release_added(step_);", "release_added(step_); ptx::wgmma_wait<1>(sum_, operand_);")]),
    ("wait for the sum leaves a group too many", {IN_FLIGHT}, [edit(GRADIENT, "ptx::wgmma_wait<1>(sum_, operand_);", "ptx::wgmma_wait<2>(sum_, operand_);")]),
    ("next scores not waited for", {TOUCHED}, [edit(GRADIENT, "ptx::wgmma_wait<0>(scores_, rows_); form(steps.block()); }", "form(steps.block()); }")]),
    ("columns in registers are others than those left out", {NUMBERS}, [edit(GRADIENT, "for (int k = resident; k < steps_of_scores; ++k)", "for (int k = resident + 1; k < steps_of_scores; ++k)")]),
    ("rows in registers without their swizzle", {NUMBERS}, [edit(GRADIENT, "swizzled_offset(16 * warp_ + (lane_ & 15), k % Layout::steps * 2 + (lane_ >> 4), Layout::row_bytes)", "((16 * warp_ + (lane_ & 15)) * Layout::row_bytes + (k % Layout::steps * 2 + (lane_ >> 4)) * 16)")]),
    ("keys overwritten while another warp multiplies them", {OVERWRITE, RACE}, [edit(GRADIENT, "ptx::barrier_sync(barrier, 128); stage_rows", "stage_rows")]),
    ("dV and dK leave before all warps have staged them", {NO_PROXY_FENCE, UNINITIALISED, RACE, OVERWRITE}, [edit(GRADIENT, "lane_); ptx::barrier_sync(barrier, 128); if (warp_ != 0", "lane_); if (warp_ != 0")]),
    ("keys given back before dV has left", {OVERWRITE}, [edit(GRADIENT, "ptx::bulk_wait_read<0>();", "")]),
    ("mask left out", {NUMBERS}, [edit(GRADIENT, "if (block < full_begin_ || block >= full_end_)", "if (false)")]),
    ("mask one query late", {NUMBERS}, [edit(SCORES, "fragment_column(0, i) < begin)", "fragment_column(0, i) < begin - 1)")]),
    ("D of another column", {NUMBERS}, [edit(GRADIENT, "const Pair d = delta[4 * (i / 4)];", "const Pair d = delta[4 * k];")]),
]

OF_QUERIES = [
    ("grad_out_empty expects two arrivals", {DEADLOCK}, [edit(QUERY_KERNEL, "ptx::init(shared.grad_out_empty[w], 1);", "ptx::init(shared.grad_out_empty[w], 2);")]),
    ("key given back before dQ is added", {OVERWRITE}, [edit(CONSUMER, "ptx::wgmma_wait<2>(grad_query_, grad_weights_); release_last_key();", "release_last_key(); ptx::wgmma_wait<2>(grad_query_, grad_weights_);")]),
    ("last key never given back", {DEADLOCK}, [edit(CONSUMER, "ptx::wgmma_wait<0>(grad_query_, grad_weights_); release_last_key();", "ptx::wgmma_wait<0>(grad_query_, grad_weights_);")]),
    ("value given back before dP is waited for", {OVERWRITE}, [edit(CONSUMER, "ptx::wgmma_wait<0>(grad_scores_); this->release_value();", "this->release_value(); ptx::wgmma_wait<0>(grad_scores_);")]),
    ("wait for the value left out", {EARLY}, [edit(CONSUMER, "issue_scores(); ptx::wait(shared_.value_full[value_.stage], value_.parity); ptx::wgmma_fence(); issue_grad_scores(); ptx::wgmma_wait<2>", "issue_scores(); ptx::wgmma_fence(); issue_grad_scores(); ptx::wgmma_wait<2>")]),
    ("wait for dO left out", {EARLY}, [edit(CONSUMER, "ptx::wait(shared_.grad_out_full[consumer_], grad_out_parity_);", "")]),
    ("dQ of the next key", {NUMBERS, EARLY, OVERWRITE}, [edit(CONSUMER, "shared_.key[key_.stage ^ 1], tile_key * Layout::row_bytes", "shared_.key[key_.stage], tile_key * Layout::row_bytes")]),
    ("wait before the exponentials names scores in flight", {IN_FLIGHT}, [edit(CONSUMER, "ptx::wgmma_wait<1>(scores_); if constexpr (Masked::value)", "ptx::wgmma_wait<2>(scores_); if constexpr (Masked::value)")]),
    ("fence doesn't name dS", {NO_FENCE}, [edit(CONSUMER, "ptx::wgmma_fence(grad_query_, grad_weights_, scores_, grad_scores_);", "ptx::wgmma_fence(grad_query_, scores_, grad_scores_);")]),
    ("mask left out", {NUMBERS}, [edit(CONSUMER, "if constexpr (Masked::value) this->mask(scores_, tile, block_, hidden());", "")]),
    ("first block's mask left out", {NUMBERS}, [edit(CONSUMER, "if (this->needs_mask(block_)) this->mask(scores_, tile, block_, hidden());", "")]),
    ("dQ staged while another warp multiplies dO", {OVERWRITE, RACE}, [edit(CONSUMER, "ptx::barrier_sync(barrier, 128); stage_rows", "stage_rows")]),
    ("dQ leaves before all warps have staged it", {NO_PROXY_FENCE, UNINITIALISED, RACE, OVERWRITE}, [edit(CONSUMER, "lane_); ptx::barrier_sync(barrier, 128);", "lane_);")]),
    ("dO's memory given back before dQ has left", {OVERWRITE}, [edit(CONSUMER, "ptx::bulk_wait_read<0>();", "")]),
    ("statistics of the block before", {NUMBERS, UNINITIALISED, "out of bounds"}, [edit(CONSUMER, "(first + block) * 2 * p.blocks.tile", "(first + block - 1) * 2 * p.blocks.tile")]),
    ("rows of both warpgroups stored in one place", {NUMBERS, "race in global memory"}, [edit(CONSUMER, "c * Layout::chunk_columns, tile.map_row + row, tile.head", "c * Layout::chunk_columns, tile.map_row + tile.row, tile.head")]),
    ("scale left out", {NUMBERS}, [edit(CONSUMER, "staged, query_params_.scale, tile.queries - row", "staged, 1, tile.queries - row")]),
    ("key loaded before the value that its place is waited for with", {DEADLOCK}, [edit(QUERY_PRODUCER, "load_key(block); load_value(block); }", "if (block - 1 != end) load_key(block - 1); load_value(block); }")]),
    ("producer doesn't wait for dO's memory", {OVERWRITE, ARRIVALS, RACE}, [edit(QUERY_PRODUCER, "shared_.grad_out_empty[w], grad_out_parity_);", "shared_.grad_out_empty[w], 0);")]),
    ("tile announced over one in use", {RACE, ARRIVALS}, [edit(QUERY_PRODUCER, "ptx::wait(shared.tile_empty[slot.stage], slot.parity ^ 1);", "")]),
    ("passed blocks' values never given back", {DEADLOCK}, [edit(BASE, "ptx::wait(shared_.value_full[value_.stage], value_.parity); release_value();", "ptx::wait(shared_.value_full[value_.stage], value_.parity); value_.next();")]),
]

OF_PREPARE = [
    ("the counter of dQ's tiles not cleared", {NUMBERS, UNINITIALISED}, [edit(PREPARE, "if (p.query_tile_counter != nullptr) *p.query_tile_counter = 0;", "")]),
]

PROBLEMS = ["--random 1,200,2,256 --key-heads 1 --key-length 300 --backward", "--random 1,330,2,256 --causal --backward",
            "--random 1,300,2,256 --cu-seqlens-q 0,90,300 --cu-seqlens-k 0,170,300 --causal --backward"]
OTHERS = ["forward_bf16_d256", "copy_16bit", "backward_prepare", "backward_bf16_d256", "backward_query_bf16_d256"]


def others(kernel):
    return [name for name in OTHERS if name != kernel]


GROUPS = [
    {"kernel": kernel, "others": others(kernel), "options": "sms=2", "problems": PROBLEMS, "mutations": mutations}
    for kernel, mutations in (("backward_bf16_d256", OF_GRADIENTS), ("backward_query_bf16_d256", OF_QUERIES),
                              ("backward_prepare", OF_PREPARE))
]

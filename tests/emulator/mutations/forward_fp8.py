"""Faults to plant in the 8-bit forward kernel: (name, kinds that may report it, edits)."""
from kinds import (ARRIVALS, BYTES, DEADLOCK, EARLY, MISALIGNED, NO_FENCE, NO_PROXY_FENCE, NUMBERS, OVERWRITE, RACE, TOUCHED,
                   UNINITIALISED, edit)

CONSUMER = "forward_fp8/consumer.cuh"
BASE = "forward/consumer_base.cuh"
PRODUCER = "forward_fp8/producer.cuh"
LOADS = "forward/producer_base.cuh"
SCHEDULER = "forward_fp8/scheduler.cuh"
EPILOGUE = "forward_fp8/epilogue.cuh"
KERNEL = "forward_fp8/kernel.cuh"
BARRIERS = "forward/barriers.cuh"
SOFTMAX = "math/softmax_fp8.cuh"

MUTATIONS = [
    # ---- roles and barriers
    ("tile_empty forgets the loader", {ARRIVALS, RACE, DEADLOCK}, [edit(BARRIERS, "warps + tile_readers);", "warps);")]),
    ("query_full expects two arrivals", {DEADLOCK}, [edit(BARRIERS, "ptx::init(shared.query_full[w][b], 1);", "ptx::init(shared.query_full[w][b], 2);")]),
    ("key_empty expects one arrival too few", {ARRIVALS, OVERWRITE, RACE}, [edit(BARRIERS, "ptx::init(shared.key_empty[s], warps);", "ptx::init(shared.key_empty[s], warps - 1);")]),
    ("fence of the barrier initialisation left out", {NO_PROXY_FENCE}, [edit(KERNEL, "    ptx::fence_barrier_init();\n", "")]),
    ("the scheduler's warp loads", {DEADLOCK, ARRIVALS, RACE}, [edit(KERNEL, "if (warp == 0)", "if (warp == 1)")]),
    ("scales announced before every lane has written them", {RACE, UNINITIALISED}, [edit(SCHEDULER, "      ptx::sync_warp();  // lane 0 announces what all have written\n", "")]),
    ("tile slot rewritten before it is read", {RACE, ARRIVALS}, [edit(SCHEDULER, "      ptx::wait(shared_.tile_empty[slot_.stage], slot_.parity ^ 1);\n", "")]),
    ("scales of a block written before its stage is empty", {RACE}, [edit(PRODUCER, "    ptx::wait(shared_.key_empty[key_.stage], key_.parity ^ 1);\n", "    if (issuer_) shared_.block_scales[key_.stage] = {};\n    ptx::wait(shared_.key_empty[key_.stage], key_.parity ^ 1);\n")]),
    ("keys announced before their scales", {ARRIVALS, RACE, UNINITIALISED, EARLY, NUMBERS}, [edit(KERNEL, "(shared, 2, config.transposes()", "(shared, 1, config.transposes()")]),
    ("scales of the tile before", {NUMBERS, RACE, UNINITIALISED}, [edit(PRODUCER, "    ptx::wait(shared_.scales_full[slot_.stage], slot_.parity);\n", "")]),
    ("blocks in the other order than their scales", {NUMBERS}, [edit(SCHEDULER, "lane_ * forward::walk_step<config.ascending>", "lane_ * -forward::walk_step<config.ascending>")]),
    ("blocks loaded in the other order than they are taken", {NUMBERS, OVERWRITE}, [edit(PRODUCER, "forward::walk_begin<config.ascending>(tile.visit), count", "forward::walk_begin<!config.ascending>(tile.visit), count"), edit(PRODUCER, "step_to_next = forward::walk_step<config.ascending>", "step_to_next = forward::walk_step<!config.ascending>")]),
    ("a masked block taken for a full one", {NUMBERS}, [edit(BASE, "before(block, full_begin_) || !before(block, full_end_)", "before(block, full_begin_)")]),
    ("a column too many seen", {NUMBERS}, [edit(BASE, "least(positive % 8, 2)", "least(positive % 8 + 1, 2)")]),
    ("stage released before every lane has its scales", {RACE}, [edit(CONSUMER, "    ptx::sync_warp();  // one lane releases the stage for all\n", "")]),
    ("scales of the other stage", {NUMBERS, RACE, UNINITIALISED}, [edit(CONSUMER, "shared_.block_scales[stage];", "shared_.block_scales[stage ^ 1];")]),
    ("loader's query ring stands still", {OVERWRITE, ARRIVALS, DEADLOCK, RACE}, [edit(LOADS, "    query_.next();\n", "")]),
    ("value expects the bytes of a group too few", {BYTES}, [edit(PRODUCER, "ptx::arrive_expect(landed, config.tile_key * config.head_dim);", "ptx::arrive_expect(landed, (config.tile_key - 16) * config.head_dim);")]),
    ("value loaded a group off", {NUMBERS}, [edit(PRODUCER, "group_ + block * (config.tile_key / value_group)", "group_ + 1 + block * (config.tile_key / value_group)")]),
    # ---- the last tile's padding
    ("patched values not fenced", {NO_PROXY_FENCE}, [edit(PRODUCER, "    ptx::fence_proxy_async();\n    ptx::sync_warp();\n", "    ptx::sync_warp();\n")]),
    ("patched values announced before every lane is done", {RACE, NO_PROXY_FENCE}, [edit(PRODUCER, "    ptx::fence_proxy_async();\n    ptx::sync_warp();\n", "    ptx::fence_proxy_async();\n")]),
    ("patch before the values have landed", {EARLY, RACE}, [edit(PRODUCER, "    ptx::wait(shared_.patch, patch_parity_);\n", "")]),
    # ---- consumers
    ("turn never given", {DEADLOCK}, [edit(CONSUMER, "    if constexpr (config.late_turn) this->give_turn();\n", "")]),
    ("scores read while they are formed", {TOUCHED, NUMBERS, NO_FENCE}, [edit(CONSUMER, "    ptx::wgmma_wait<1>(scores_);\n", "")]),
    ("key stage given back before its product is done", {OVERWRITE, RACE}, [edit(CONSUMER, "    ptx::wgmma_wait<1>(scores_);\n    free_key(stage);\n    ptx::wgmma_wait<0>(output_, weights_);", "    free_key(stage);\n    ptx::wgmma_wait<1>(scores_);\n    ptx::wgmma_wait<0>(output_, weights_);")]),
    ("values of the wrong stage", {EARLY, OVERWRITE, RACE, NUMBERS, UNINITIALISED}, [edit(CONSUMER, "    if constexpr (config.late_turn)\n      issue_output(value_descriptor(stage ^ 1), No{});", "    if constexpr (config.late_turn)\n      issue_output(value_descriptor(stage), No{});")]),
    ("core matrices of values a row apart", {NUMBERS, MISALIGNED}, [edit(CONSUMER, "16 * config.head_dim, 128);", "16 * config.head_dim, 112);")]),
    ("query released before the last block's product", {OVERWRITE, EARLY, ARRIVALS, DEADLOCK}, [edit(BASE, "self().first_weights(tile); all_steps(tile);", "self().first_weights(tile); release_query(); all_steps(tile);"), edit(BASE, "    release_query();\n  }\n  /// S of the first", "  }\n  /// S of the first")]),
    ("next tile's scores issued before its query has landed", {EARLY, RACE, UNINITIALISED}, [edit(CONSUMER, "    ptx::wait(shared_.query_full[consumer_][query_.stage], query_.parity);\n", "")]),
    ("first scores read while they are formed", {TOUCHED, NUMBERS, NO_FENCE}, [edit(CONSUMER, "TANDEM_DEVICE void await_first_scores() { ptx::wgmma_wait<0>(scores_); }", "TANDEM_DEVICE void await_first_scores() {}")]),
    ("last values given back before their product is done", {OVERWRITE, RACE, TOUCHED, NUMBERS}, [edit(CONSUMER, "    ptx::wgmma_wait<behind>(output_, weights_);\n", "")]),
    ("a tile's slot given back before its epilogue", {RACE}, [edit(BASE, "more = begin_next(); self().after_tile(tile); release_tile();", "more = begin_next(); release_tile(); self().after_tile(tile);")]),
    # ---- arithmetic
    ("value's scale not taken out of the sums", {NUMBERS}, [edit(SOFTMAX, "ptx::multiply_add(block_[r], value_inverse_, sum_[r])", "block_[r] + sum_[r]")]),
    ("weights packed as columns follow each other", {NUMBERS}, [edit(SOFTMAX, "ptx::pack_e4m3(p[0], p[1], p[4], p[5])", "ptx::pack_e4m3(p[0], p[1], p[2], p[3])")]),
    ("output not scaled", {NUMBERS}, [edit(EPILOGUE, "factor[r] *= scales.values[0];", "")]),
    ("proxy fence before the store left out", {NO_PROXY_FENCE}, [edit(EPILOGUE, "    ptx::fence_proxy_async();\n", "")]),
    ("output buffer rewritten while its store reads it", {OVERWRITE}, [edit(EPILOGUE, "    if (lane == 0) ptx::bulk_wait_read<0>();\n", "")]),
    ("every warp stores the first one's rows", {NUMBERS, "race in global memory"}, [edit(EPILOGUE, "64 * consumer + stored_rows * warp)", "64 * consumer)")]),
]

# Of a kernel with a masked and an unmasked body, O before S, and promotion.
LONG = [
    ("sums begin with what the buffer held", {NUMBERS, UNINITIALISED, RACE}, [edit(CONSUMER, "      promotion().clear();\n", "")]),
    ("promoted sums keep the old reference", {NUMBERS}, [edit(CONSUMER, "if (consumer.promoted_) consumer.promotion().scale(factor0, factor1);", "")]),
    ("promoted sums forgotten at a tile's end", {NUMBERS}, [edit(CONSUMER, "if (promoted_) promotion().add_to(output_);", "")]),
    ("O kept as its sum is promoted", {NUMBERS}, [edit("forward_fp8/promotion.cuh", "        output[i + j] = 0;\n", "")]),
    ("masked blocks behind the full ones left out of the mask", {NUMBERS, DEADLOCK}, [edit(BASE, "self().steps(tile, masked_until, Yes{});", "self().steps(tile, masked_until, No{});")]),
    ("scales of the first 32 blocks for those after them", {NUMBERS}, [edit(PRODUCER, "else if (lane == 0 && fp8_params_.scales_by_block)", "else if (lane == 99)")]),
    ("values released before O is done", {OVERWRITE, RACE, TOUCHED, NUMBERS}, [edit(CONSUMER, "    ptx::wgmma_wait<1>(output_, weights_);\n    free_value(stage);", "    free_value(stage);\n    ptx::wgmma_wait<1>(output_, weights_);")]),
]
# Of one whose consumers see blocks of their own, with two slots for descriptions.
SLOTS = [
    ("the next tile awaited before others have their turns", {DEADLOCK}, [edit(BASE, "config.tile_slots == 2 && behind > 0", "config.tile_slots == 1 && behind > 0")]),
]

QUANTISERS = ["quantize_rows", "quantize_value", "quantize_columns", "quantize_combine", "copy_16bit"]

GROUPS = [
    {"kernel": "forward_e4m3_d128", "others": QUANTISERS, "options": "sms=1", "mutations": MUTATIONS,
     "problems": ["--random 1,300,2,128 --key-heads 1 --fp8 fp8", "--random 1,150,2,128 --key-length 700 --fp8 fp8",
                  "--random 1,300,2,128 --cu-seqlens-q 0,90,300 --cu-seqlens-k 0,170,300 --causal --fp8 fp8"]},
    # The others serve the rest of a test's cases.
    {"kernel": "forward_e4m3_d128_long", "others": ["forward_e4m3_d128", "forward_e4m3_d128_n64"], "options": "sms=1", "mutations": LONG,
     "tests": ["emulator_fp8 Emulator/Fp8Kernel.PassesTheChecks/forward_e4m3_d128_long"]},
    {"kernel": "forward_e4m3_d256_n96", "others": ["forward_e4m3_d256"], "options": "sms=1", "mutations": SLOTS,
     "tests": ["emulator_fp8 Emulator/Fp8Kernel.PassesTheChecks/forward_e4m3_d256_n96"]},
]

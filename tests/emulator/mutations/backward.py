"""Faults to plant in the backward kernels: (name, kinds that may report it, edits)."""
from kinds import (ARRIVALS, BYTES, CLASH, DEADLOCK, EARLY, EQUIVALENT, IN_FLIGHT, NO_FENCE, NO_PROXY_FENCE, NUMBERS, OUTSIDE, OVERWRITE,
                   RACE, TOUCHED, UNINITIALISED, edit)

CONSUMER = "backward/consumer.cuh"
PRODUCER = "backward/producer.cuh"
STAGING = "backward/staging.cuh"
KERNEL = "backward/kernel.cuh"
PREPARE = "backward/prepare.cuh"
FINISH = "backward/finish.cuh"
ORDERED = "backward/ordered.cuh"
NO_BULK_WAIT = "missing bulk wait"
RACE_GLOBAL = "race in global memory"

MUTATIONS = [
    # ---- initialisation
    ("key_full expects two arrivals", {DEADLOCK}, [edit(KERNEL, "ptx::init(shared.key_full, 1);", "ptx::init(shared.key_full, 2);")]),
    ("value_full expects two arrivals", {DEADLOCK}, [edit(KERNEL, "ptx::init(shared.value_full, 1);", "ptx::init(shared.value_full, 2);")]),
    ("query_full expects two arrivals", {DEADLOCK}, [edit(KERNEL, "shared.query_full[s], 1)", "shared.query_full[s], 2)")]),
    ("query_empty expects one arrival too many", {DEADLOCK}, [edit(KERNEL, "shared.query_empty[s], warps)", "shared.query_empty[s], warps + 1)")]),
    ("query_empty expects one arrival too few", {ARRIVALS, OVERWRITE}, [edit(KERNEL, "shared.query_empty[s], warps)", "shared.query_empty[s], warps - 1)")]),
    ("grad_out_empty expects arrivals of one consumer", {ARRIVALS, OVERWRITE, DEADLOCK}, [edit(KERNEL, "shared.grad_out_empty[s], warps)", "shared.grad_out_empty[s], 4)")]),
    ("grad_scores_full expects one arrival too many", {DEADLOCK}, [edit(KERNEL, "shared.grad_scores_full[s], warps)", "shared.grad_scores_full[s], warps + 1)")]),
    ("grad_scores_full expects one arrival too few", {RACE, ARRIVALS, UNINITIALISED, NO_PROXY_FENCE, OVERWRITE}, [edit(KERNEL, "shared.grad_scores_full[s], warps)", "shared.grad_scores_full[s], warps - 1)")]),
    ("fence of the barrier initialisation left out", {NO_PROXY_FENCE}, [edit(KERNEL, "  ptx::fence_barrier_init();\n", "")]),
    ("block barrier after the initialisation left out", {RACE, UNINITIALISED}, [edit(KERNEL, "  ptx::sync_block();\n", "")]),
    ("consumers take more registers than there are", {DEADLOCK, "registers"}, [edit(KERNEL, "ptx::registers_up<Config::registers_consumer>", "ptx::registers_up<Config::registers_consumer + 8>")]),
    # ---- producer
    ("keys expect 16 bytes too few", {BYTES}, [edit(PRODUCER, "ptx::arrive_expect(full, Layout::bytes(config.tile_key()))", "ptx::arrive_expect(full, Layout::bytes(config.tile_key()) - 16)")]),
    ("block expects no bytes of the statistic", {BYTES}, [edit(PRODUCER, "Layout::bytes(config.tile_query) + bytes)", "Layout::bytes(config.tile_query))")]),
    ("producer doesn't wait for an empty query stage", {OVERWRITE, ARRIVALS, RACE}, [edit(PRODUCER, "ptx::wait(shared_.query_empty[s], query_.parity ^ 1);", "")]),
    # ---- writer of dQ
    ("dQ added before it is there", {RACE, UNINITIALISED, NO_PROXY_FENCE, OVERWRITE}, [edit(PRODUCER, "ptx::wait(shared_.slot_full[slot][part], parity);", "")]),
    ("dQ's slot freed while the reduction reads it", {OVERWRITE}, [edit(PRODUCER, "ptx::bulk_wait_read<0>();  // at the last one", "// at the last one")]),
    # ---- consumers: waits
    ("wait for an empty dS left out: who waits for the last step's dS comes after every reader of the one before", {EQUIVALENT}, [edit(CONSUMER, "ptx::wait(shared_.grad_scores_empty[stage(step_)], parity(step_) ^ 1);", "")]),
    # ---- consumers: wgmma
    ("queries released before dK's wgmma is waited for", {OVERWRITE}, [edit(CONSUMER, "ptx::wgmma_wait<0>(grad_key_, weights_, grad_weights_); release_query();", "release_query(); ptx::wgmma_wait<0>(grad_key_, weights_, grad_weights_);")]),
    # ---- consumers: handing over
    ("the warp's barrier after LSE and D are read left out: the one before dS is handed over comes before their next load", {EQUIVALENT}, [edit(CONSUMER, "ptx::sync_warp();  // all lanes have read LSE and D", "//")]),
    ("proxy fence of dS left out", {NO_PROXY_FENCE}, [edit(CONSUMER, "ptx::fence_proxy_async(); ptx::sync_warp(); release(shared_.grad_scores_full", "ptx::sync_warp(); release(shared_.grad_scores_full")]),
    ("warp's barrier before dS is handed over left out", {RACE, NO_PROXY_FENCE}, [edit(CONSUMER, "ptx::fence_proxy_async(); ptx::sync_warp(); release(shared_.grad_scores_full", "ptx::fence_proxy_async(); release(shared_.grad_scores_full")]),
    ("turns share a barrier", {CLASH, DEADLOCK, RACE}, [edit(CONSUMER, "ptx::barrier_sync(turn_barrier(consumer_), turn_threads)", "ptx::barrier_sync(turn_barrier(0), turn_threads)")]),
    # ---- end of a tile
    ("tile given back before every lane has read it", {RACE, EQUIVALENT}, [edit(CONSUMER, "ptx::sync_warp();  // every lane has read the tile", "")]),
    ("slot_full expects three warps", {RACE, ARRIVALS, UNINITIALISED, NO_PROXY_FENCE, OVERWRITE}, [edit(KERNEL, "shared.slot_full[s][w], 4)", "shared.slot_full[s][w], 3)")]),
    ("slot_empty expects two arrivals", {DEADLOCK}, [edit(KERNEL, "shared.slot_empty[s][w], 1)", "shared.slot_empty[s][w], 2)")]),
    ("tile_full expects two arrivals", {DEADLOCK}, [edit(KERNEL, "shared.tile_full[s], 1)", "shared.tile_full[s], 2)")]),
    ("tile_empty expects one arrival too few", {ARRIVALS, RACE}, [edit(KERNEL, "shared.tile_empty[s], 1 + ", "shared.tile_empty[s], ")]),
    ("key_empty expects one arrival too few", {ARRIVALS, OVERWRITE}, [edit(KERNEL, "shared.key_empty, by_keys ? warps :", "shared.key_empty, by_keys ? warps - 1 :")]),
    ("value_empty expects one arrival too many", {DEADLOCK}, [edit(KERNEL, "shared.value_empty, by_keys ? warps :", "shared.value_empty, by_keys ? warps + 1 :")]),
    ("producer waits for the wrong parity of query_empty", {DEADLOCK, OVERWRITE, ARRIVALS}, [edit(PRODUCER, "shared_.query_empty[s], query_.parity ^ 1", "shared_.query_empty[s], query_.parity")]),
    ("LSE loaded in place of D", {NUMBERS}, [edit(PRODUCER, "shared_.delta[s], 1,", "shared_.delta[s], 0,")]),
    ("groups never committed", {NO_BULK_WAIT, OVERWRITE}, [edit(PRODUCER, "ptx::bulk_commit();", "")]),
    ("producer doesn't wait for the last tile's keys", {OVERWRITE, ARRIVALS, RACE}, [edit(PRODUCER, "ptx::wait(shared_.key_empty, keys_ ^ 1);", "")]),
    ("producer doesn't wait for the last tile's values", {OVERWRITE, ARRIVALS, RACE}, [edit(PRODUCER, "ptx::wait(shared_.value_empty, keys_ ^ 1);", "")]),
    ("tile announced over one in use", {RACE, ARRIVALS}, [edit(PRODUCER, "ptx::wait(shared.tile_empty[i % 2], static_cast<int>(i / 2 & 1) ^ 1);", "")]),
    ("values released before dP is computed", {OVERWRITE, ARRIVALS}, [edit(CONSUMER, "if constexpr (!more) release(shared_.value_empty);", ""), edit(CONSUMER, "if (config.turns && consumer_ == 1) give_turn(); weigh();", "release(shared_.value_empty); if (config.turns && consumer_ == 1) give_turn(); weigh();")]),
    ("keys released before the last dQ is computed", {OVERWRITE, ARRIVALS}, [edit(CONSUMER, "release(shared_.key_empty); stage_keys", "stage_keys"), edit(CONSUMER, "wait_grad_scores(); ptx::wgmma_fence(grad_query_); issue_grad_query(); ptx::wgmma_wait<0>(grad_query_);", "release(shared_.key_empty); wait_grad_scores(); ptx::wgmma_fence(grad_query_); issue_grad_query(); ptx::wgmma_wait<0>(grad_query_);")]),
    ("keys never released", {DEADLOCK}, [edit(CONSUMER, "release(shared_.key_empty); stage_keys", "stage_keys")]),
    ("tile never given back", {DEADLOCK}, [edit(CONSUMER, "release(shared_.tile_empty[tile_ % 2]);", "")]),
    ("proxy fence of dK and dV left out", {NO_PROXY_FENCE}, [edit(STAGING, "ptx::fence_proxy_async();", "")]),
    ("warp's barrier before dK and dV are handed over left out", {RACE, NO_PROXY_FENCE, UNINITIALISED}, [edit(CONSUMER, "scale, rows, warp_, lane_); ptx::sync_warp();", "scale, rows, warp_, lane_);")]),
    ("dK without its scale", {NUMBERS}, [edit(CONSUMER, "stage_keys(grad_key_, params_.scale, slot)", "stage_keys(grad_key_, 1, slot)")]),
    ("producer doesn't wait for an empty dO stage: Q of the same step, which goes first, waits for one released later", {EQUIVALENT, OVERWRITE, ARRIVALS, RACE}, [edit(PRODUCER, "ptx::wait(shared_.grad_out_empty[s], grad_out_.parity ^ 1);", "")]),
    ("statistics of another block", {NUMBERS, OUTSIDE}, [edit(PRODUCER, "(2 * place + which)", "(place + which)")]),
    ("block loaded one row off", {NUMBERS}, [edit(PRODUCER, "tile_->query_row + steps.block() * config.tile_query, steps.head()", "tile_->query_row + 1 + steps.block() * config.tile_query, steps.head()")]),
    ("query ring stands still", {DEADLOCK, OVERWRITE, ARRIVALS, RACE}, [edit(PRODUCER, "    query_.next();\n", "")]),
    ("dO ring stands still", {DEADLOCK, OVERWRITE, ARRIVALS, RACE}, [edit(PRODUCER, "    grad_out_.next();\n", "")]),
    ("dQ's slot never freed", {DEADLOCK}, [edit(PRODUCER, "ptx::arrive(shared_.slot_empty[slot][part]);", "{}")]),
    ("both parts of dQ added to one place", {NUMBERS, RACE_GLOBAL}, [edit(PRODUCER, "(place * Config::consumers + part) * config.part_floats()", "(place * Config::consumers) * config.part_floats()")]),
    ("half of dQ added", {NUMBERS, UNINITIALISED}, [edit(PRODUCER, "config.part_floats() * static_cast<int>(sizeof(float))", "config.part_floats() / 2 * static_cast<int>(sizeof(float))")]),
    ("wait for the keys left out", {EARLY}, [edit(CONSUMER, "ptx::wait(shared_.key_full, keys_parity());", "")]),
    ("wait for the values left out", {EARLY}, [edit(CONSUMER, "issue_scores(step_); ptx::wait(shared_.value_full, keys_parity());", "issue_scores(step_);")]),
    ("wait for the first queries left out", {EARLY}, [edit(CONSUMER, "ptx::wait(shared_.query_full[stage(step_)], parity(step_));", "")]),
    ("wait for the next queries left out", {EARLY}, [edit(CONSUMER, "ptx::wait(shared_.query_full[stage(step_ + 1)], parity(step_ + 1));", "")]),
    ("wait for dO left out", {EARLY}, [edit(CONSUMER, "ptx::wait(shared_.grad_out_full[stage(step_)], parity(step_));", "")]),
    ("wait for dS left out", {RACE, UNINITIALISED, NO_PROXY_FENCE, EARLY}, [edit(CONSUMER, "ptx::wait(shared_.grad_scores_full[stage(step_ - 1)], parity(step_ - 1));", "")]),
    ("wrong parity of dS", {DEADLOCK, RACE, UNINITIALISED, NO_PROXY_FENCE}, [edit(CONSUMER, "shared_.grad_scores_full[stage(step_ - 1)], parity(step_ - 1)", "shared_.grad_scores_full[stage(step_ - 1)], parity(step_ - 1) ^ 1")]),
    ("dQ's slot overwritten while it is read", {OVERWRITE, RACE, ARRIVALS}, [edit(CONSUMER, "ptx::wait(shared_.slot_empty[slot % config.slots][consumer_], static_cast<int>(slot / config.slots & 1) ^ 1);", "")]),
    ("fence of the first scores left out", {NO_FENCE}, [edit(CONSUMER, "ptx::wgmma_fence(scores_); issue_scores(step_);", "issue_scores(step_);")]),
    ("fence of dP left out", {NO_FENCE}, [edit(CONSUMER, "ptx::wgmma_fence(grad_scores_);", "")]),
    ("fence doesn't name P", {NO_FENCE}, [edit(CONSUMER, "ptx::wgmma_fence(weights_, grad_value_);", "ptx::wgmma_fence(grad_value_);")]),
    ("fence doesn't name dQ", {NO_FENCE}, [edit(CONSUMER, "ptx::wgmma_fence(grad_weights_, grad_key_, grad_query_);", "ptx::wgmma_fence(grad_weights_, grad_key_);")]),
    ("scores not waited for", {TOUCHED}, [edit(CONSUMER, "ptx::wgmma_wait<1>(scores_);", "")]),
    ("dP not waited for", {TOUCHED}, [edit(CONSUMER, "ptx::wgmma_wait<0>(grad_scores_);", "")]),
    ("wait for dK leaves a group", {IN_FLIGHT, OVERWRITE}, [edit(CONSUMER, "ptx::wgmma_wait<0>(grad_key_, weights_, grad_weights_);", "ptx::wgmma_wait<1>(grad_key_, weights_, grad_weights_);")]),
    ("commit of a sum left out", {IN_FLIGHT, TOUCHED}, [edit(CONSUMER, "ptx::advance(b, k * 16 * Layout::row_bytes), true); ptx::wgmma_commit();", "ptx::advance(b, k * 16 * Layout::row_bytes), true);")]),
    ("dO released before dV's wgmma is waited for: the next dO in that place comes behind a Q that waits for dK", {EQUIVALENT, OVERWRITE}, [edit(CONSUMER, "wait_all_but<1, last_dq>(grad_value_); release_grad_out();", "release_grad_out(); wait_all_but<1, last_dq>(grad_value_);")]),
    ("sum's descriptor advances half", {NUMBERS}, [edit(CONSUMER, "ptx::wgmma<Element, ptx::Major::MN>(sum, a[k], ptx::advance(b, k * 16 * Layout::row_bytes)", "ptx::wgmma<Element, ptx::Major::MN>(sum, a[k], ptx::advance(b, k * 8 * Layout::row_bytes)")]),
    ("proxy fence of the last dQ left out", {NO_PROXY_FENCE}, [edit(CONSUMER, "store_grad_query(slot); ptx::fence_proxy_async(); ptx::sync_warp(); release_slot(slot++);", "store_grad_query(slot); ptx::sync_warp(); release_slot(slot++);")]),
    ("dS never handed over", {DEADLOCK}, [edit(CONSUMER, "release(shared_.grad_scores_full[stage(step_)]);", "")]),
    ("dS never given back", {DEADLOCK}, [edit(CONSUMER, "release(shared_.grad_scores_empty[stage(step_ - 1)]);", "")]),
    ("dQ never handed over", {DEADLOCK}, [edit(CONSUMER, "release(shared_.slot_full[slot % config.slots][consumer_]);", "")]),
    ("every lane hands dQ over", {ARRIVALS, RACE, DEADLOCK, OVERWRITE}, [edit(CONSUMER, "release(shared_.slot_full[slot % config.slots][consumer_]);", "ptx::arrive(shared_.slot_full[slot % config.slots][consumer_]);")]),
    ("queries never released", {DEADLOCK}, [edit(CONSUMER, "release(shared_.query_empty[stage(step_)]);", "")]),
    ("dO never released", {DEADLOCK}, [edit(CONSUMER, "release(shared_.grad_out_empty[stage(step_)]);", "")]),
    ("dS staged without its transposition", {NUMBERS}, [edit(CONSUMER, "ptx::store_matrices_transposed(target", "ptx::store_matrices(target")]),
    ("dS staged without its swizzle", {NUMBERS}, [edit(CONSUMER, "swizzled_offset((lane_ >> 4) * 8 + (lane_ & 7), warp_ * 2 + ((lane_ >> 3) & 1), ScoreLayout::row_bytes)", "(((lane_ >> 4) * 8 + (lane_ & 7)) * ScoreLayout::row_bytes + (warp_ * 2 + ((lane_ >> 3) & 1)) * 16)")]),
    ("mask left out", {NUMBERS}, [edit(CONSUMER, "if (block_ < full_begin_ || block_ >= full_end_) hide_unseeing_queries(", "if (false) hide_unseeing_queries(")]),
    # ---- the order of additions to dQ
    ("first part of dQ added to what lies there", {NUMBERS, UNINITIALISED}, [edit(PRODUCER, "ptx::bulk_store(target, source, bytes);", "ptx::bulk_reduce_add(target, source, bytes);")]),
    ("all parts of dQ stored", {NUMBERS, RACE_GLOBAL}, [edit(PRODUCER, "ptx::bulk_reduce_add(target, source, bytes);", "ptx::bulk_store(target, source, bytes);")]),
    ("others don't wait for the first part of dQ", {NUMBERS, RACE_GLOBAL}, [edit(PRODUCER, "order_.wait(*tile_, steps.block(), place);", "")]),
    ("first part of dQ never announced", {DEADLOCK}, [edit(PRODUCER, "ptx::bulk_wait<0>(); order_.announce(place);", "ptx::bulk_wait<0>();")]),
    ("part of dQ announced before it is complete", {NUMBERS, RACE_GLOBAL, NO_BULK_WAIT}, [edit(PRODUCER, "ptx::bulk_wait<0>();", "")]),
    ("the last parts of dQ announced as the first", {DEADLOCK, NUMBERS, RACE_GLOBAL}, [edit(ORDERED, "return block >= tile.first.begin && block < tile.first.end;", "return block < tile.first.begin || block >= tile.first.end;")]),
    ("both threads send everything", {ARRIVALS, RACE, OVERWRITE, RACE_GLOBAL, NUMBERS, DEADLOCK}, [edit(PRODUCER, "return !takes_turns || static_cast<int>(number_ & 1) == thread_;", "return true;")]),
    ("blocks of a tile in no direction", {NUMBERS, DEADLOCK, OUTSIDE}, [edit(CONSUMER, "block_ += direction_;", "")]),
    ("next tile taken when it likes, which costs time alone", {EQUIVALENT}, [edit(PRODUCER, "if (i > 0) ptx::wait(shared.tile_loaded, static_cast<int>(i & 1) ^ 1);", "")]),
    ("loads of a tile never announced", {DEADLOCK}, [edit(PRODUCER, "ptx::arrive(shared_.tile_loaded);", "")]),
    ("turn handed to oneself", {DEADLOCK, CLASH}, [edit(CONSUMER, "ptx::barrier_arrive(turn_barrier(consumer_ ^ 1), turn_threads)", "ptx::barrier_arrive(turn_barrier(consumer_), turn_threads)")]),
]

OF_PREPARE = [
    ("flags not cleared", {NUMBERS, UNINITIALISED, RACE_GLOBAL, DEADLOCK}, [edit(PREPARE, "p.flags[at.place] = 0;", "{}")]),
    ("rows beyond the used ones read", {NUMBERS, OUTSIDE}, [edit(PREPARE, "if (row >= block.used) continue;", "")]),
    ("statistics of one row overwrite each other", {RACE_GLOBAL, NUMBERS}, [edit(PREPARE, "if (lane != 0 || row >= p.blocks.tile) continue;", "if (row >= p.blocks.tile) continue;")]),
]
OF_PARTS = [
    ("one warpgroup's announcement counts for both", {RACE_GLOBAL, NUMBERS}, [edit(ORDERED, "config.slots == 1 ? Config::consumers : 1;", "config.slots == 1 ? 1 : 1;")]),
    ("both threads serve the first warpgroup", {ARRIVALS, RACE, OVERWRITE, DEADLOCK, NUMBERS}, [edit(PRODUCER, "takes_turns ? 0 : thread_, end = takes_turns ? Config::consumers : thread_ + 1;", "0, end = takes_turns ? Config::consumers : 1;")]),
]
OF_FINISH = [
    ("blocks that no tile visited read", {NUMBERS, UNINITIALISED}, [edit(FINISH, "block.used > 0 && p.flags[at.place] != 0 ? block.used : 0;", "block.used;")]),
    ("tile read before it is whole", {RACE, UNINITIALISED}, [edit(FINISH, "  ptx::sync_block();\n", "")]),
    ("rows beyond the sequence written", {OUTSIDE, NUMBERS, RACE_GLOBAL}, [edit(FINISH, "if (row >= block.rows) break;", "")]),
    ("scale left out", {NUMBERS}, [edit(FINISH, "ptx::pack<Element>(q.x * p.scale, q.y * p.scale)", "ptx::pack<Element>(q.x, q.y)")]),
]

PROBLEMS = ["--random 1,200,2,128 --key-heads 1 --key-length 300 --backward", "--random 1,330,2,128 --causal --backward",
            "--random 1,300,2,128 --cu-seqlens-q 0,90,300 --cu-seqlens-k 0,170,300 --causal --backward"]
PROBLEMS_D64 = [problem.replace(",128 ", ",64 ") for problem in PROBLEMS]
FORWARD_D64 = ["forward_bf16_d64", "copy_16bit"]
FORWARD = ["forward_bf16_d128", "copy_16bit"]
HELPERS = ["backward_prepare", "backward_finish"]

GROUPS = [
    {"kernel": "backward_bf16_d128", "others": FORWARD + HELPERS, "options": "sms=2", "problems": PROBLEMS, "mutations": MUTATIONS},
    {"kernel": "backward_bf16_d64", "others": FORWARD_D64 + HELPERS, "options": "sms=2", "problems": PROBLEMS_D64, "mutations": OF_PARTS},
    {"kernel": "backward_prepare", "others": FORWARD + ["backward_bf16_d128", "backward_finish"], "options": "sms=2", "problems": PROBLEMS, "mutations": OF_PREPARE},
    {"kernel": "backward_finish", "others": FORWARD + ["backward_bf16_d128", "backward_prepare"], "options": "sms=2", "problems": PROBLEMS, "mutations": OF_FINISH},
]

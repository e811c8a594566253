"""Faults to plant in the forward kernel: (name, kinds that may report it, edits)."""
from kinds import (ARRIVALS, BYTES, CLASH, DEADLOCK, EARLY, EQUIVALENT, IN_FLIGHT, MISALIGNED, NO_FENCE, NO_PROXY_FENCE, NUMBERS,
                   OUTSIDE, OVERWRITE, RACE, TOUCHED, UNINITIALISED, edit)

CONSUMER = "forward/consumer.cuh"
PRODUCER = "forward/producer.cuh"
EPILOGUE = "forward/epilogue.cuh"
KERNEL = "forward/kernel.cuh"
SCHEDULER = "forward/scheduler.cuh"
BARRIERS = "forward/named_barriers.hpp"
RING = "tile/ring.cuh"

MUTATIONS = [
    # ---- initialisation
    ("query_full expects two arrivals", {DEADLOCK}, [edit(KERNEL, "shared.query_full[w], 1)", "shared.query_full[w], 2)")]),
    ("query_empty expects one arrival too many", {DEADLOCK}, [edit(KERNEL, "query_empty[w], 4", "query_empty[w], 5")]),
    ("query_empty expects one arrival too few", {ARRIVALS, OVERWRITE, EARLY}, [edit(KERNEL, "query_empty[w], 4", "query_empty[w], 3")]),
    ("key_full expects two arrivals", {DEADLOCK}, [edit(KERNEL, "shared.key_full[s], 1)", "shared.key_full[s], 2)")]),
    ("key_empty expects one arrival too many", {DEADLOCK}, [edit(KERNEL, "shared.key_empty[s], warps)", "shared.key_empty[s], warps + 1)")]),
    ("key_empty expects one arrival too few", {ARRIVALS, OVERWRITE}, [edit(KERNEL, "shared.key_empty[s], warps)", "shared.key_empty[s], warps - 1)")]),
    ("value_full expects two arrivals", {DEADLOCK}, [edit(KERNEL, "shared.value_full[s], 1)", "shared.value_full[s], 2)")]),
    ("value_empty expects one arrival too few", {ARRIVALS, OVERWRITE}, [edit(KERNEL, "shared.value_empty[s], warps)", "shared.value_empty[s], warps - 1)")]),
    ("value_empty expects arrivals of one consumer", {ARRIVALS, OVERWRITE}, [edit(KERNEL, "shared.value_empty[s], warps)", "shared.value_empty[s], 4)")]),
    ("tile_full expects two arrivals", {DEADLOCK}, [edit(KERNEL, "shared.tile_full[s], 1)", "shared.tile_full[s], 2)")]),
    ("tile_empty expects one arrival too many", {DEADLOCK}, [edit(KERNEL, "shared.tile_empty[s], warps)", "shared.tile_empty[s], warps + 1)")]),
    ("tile_empty expects one arrival too few", {ARRIVALS, RACE}, [edit(KERNEL, "shared.tile_empty[s], warps)", "shared.tile_empty[s], warps - 1)")]),
    ("fence of the barrier initialisation left out", {NO_PROXY_FENCE}, [edit(KERNEL, "  ptx::fence_barrier_init();\n", "")]),
    ("block barrier after the initialisation left out", {RACE, UNINITIALISED}, [edit(KERNEL, "  ptx::sync_block();\n", "")]),
    ("consumers take more registers than there are", {DEADLOCK}, [edit(KERNEL, "ptx::registers_up<config.registers_consumer()>", "ptx::registers_up<config.registers_consumer() + 8>")]),
    ("producer gives no registers away", {DEADLOCK}, [edit(KERNEL, "    ptx::registers_down<config.registers_producer()>();\n", "")]),
    ("register count that setmaxnreg doesn't take", {"registers"}, [edit(KERNEL, "ptx::registers_down<config.registers_producer()>", "ptx::registers_down<config.registers_producer() + 4>")]),
    # ---- producer
    ("tile slot rewritten before it is read", {RACE, ARRIVALS}, [edit(PRODUCER, "    ptx::wait(shared_.tile_empty[slot_.stage], slot_.parity ^ 1);\n", "")]),
    ("producer waits for the wrong parity of tile_empty", {DEADLOCK, RACE, ARRIVALS}, [edit(PRODUCER, "ptx::wait(shared_.tile_empty[slot_.stage], slot_.parity ^ 1)", "ptx::wait(shared_.tile_empty[slot_.stage], slot_.parity)")]),
    ("tile never announced", {DEADLOCK}, [edit(PRODUCER, "    ptx::arrive(shared_.tile_full[slot_.stage]);\n", "")]),
    ("producer doesn't wait for an empty query buffer", {OVERWRITE, ARRIVALS, EARLY}, [edit(PRODUCER, "      ptx::wait(shared_.query_empty[w], query_parity_ ^ 1);\n", "")]),
    ("producer waits for the wrong parity of query_empty", {DEADLOCK, OVERWRITE}, [edit(PRODUCER, "ptx::wait(shared_.query_empty[w], query_parity_ ^ 1)", "ptx::wait(shared_.query_empty[w], query_parity_)")]),
    ("producer's query parity never flips", {OVERWRITE, ARRIVALS, DEADLOCK}, [edit(PRODUCER, "    query_parity_ ^= 1;\n", "")]),
    ("query expects 128 bytes too few", {BYTES}, [edit(PRODUCER, "QueryLayout::bytes(64));", "QueryLayout::bytes(64) - 128);")]),
    ("query expects 128 bytes too many", {DEADLOCK}, [edit(PRODUCER, "QueryLayout::bytes(64));", "QueryLayout::bytes(64) + 128);")]),
    ("producer doesn't wait for an empty key stage", {OVERWRITE, ARRIVALS, RACE}, [edit(PRODUCER, "    ptx::wait(shared_.key_empty[key_.stage], key_.parity ^ 1);\n", "")]),
    ("producer waits for the wrong parity of key_empty", {DEADLOCK, OVERWRITE}, [edit(PRODUCER, "ptx::wait(shared_.key_empty[key_.stage], key_.parity ^ 1)", "ptx::wait(shared_.key_empty[key_.stage], key_.parity)")]),
    ("producer doesn't wait for an empty value stage", {OVERWRITE, ARRIVALS, RACE}, [edit(PRODUCER, "    ptx::wait(shared_.value_empty[value_.stage], value_.parity ^ 1);\n", "")]),
    ("stage expects the bytes of eight rows too few", {BYTES}, [edit(PRODUCER, "ptx::arrive_expect(full, Layout::bytes(config.tile_key))", "ptx::arrive_expect(full, Layout::bytes(config.tile_key - 8))")]),
    ("stage expects 16 bytes too many", {DEADLOCK}, [edit(PRODUCER, "ptx::arrive_expect(full, Layout::bytes(config.tile_key))", "ptx::arrive_expect(full, Layout::bytes(config.tile_key) + 16)")]),
    ("chunks of a stage overlap", {RACE}, [edit(PRODUCER, "Layout::chunk_offset(config.tile_key, c) / 2, map", "Layout::chunk_offset(config.tile_key, c) / 4, map")]),
    ("stage loaded one row off", {NUMBERS}, [edit(PRODUCER, "row_ + block * config.tile_key, head_", "row_ + 1 + block * config.tile_key, head_")]),
    ("chunks of a stage take the same columns", {NUMBERS}, [edit(PRODUCER, "map, full, c * Layout::chunk_columns,", "map, full, 0,")]),
    ("key head is the query's", {NUMBERS, OUTSIDE}, [edit(PRODUCER, "head_ = tile.head / params_.group;", "head_ = tile.head;")]),
    ("value loaded into the key ring", {RACE, OVERWRITE, EARLY, DEADLOCK, UNINITIALISED}, [edit(PRODUCER, "params_.value, shared_.value[value_.stage]", "params_.value, shared_.key[value_.stage]")]),
    ("value completes on the key's barrier", {DEADLOCK, BYTES, ARRIVALS, EARLY}, [edit(PRODUCER, "shared_.value_full[value_.stage], block", "shared_.key_full[value_.stage], block")]),
    ("producer's value ring stands still", {DEADLOCK, OVERWRITE, ARRIVALS, RACE}, [edit(PRODUCER, "    value_.next();\n", "")]),
    ("ring parity never flips", {DEADLOCK, EARLY, OVERWRITE, ARRIVALS, RACE}, [edit(RING, "      parity ^= 1;\n", "")]),
    ("two warps produce", {ARRIVALS, RACE}, [edit(KERNEL, "ptx::thread_index() < 32", "ptx::thread_index() < 64")]),
    ("other lanes read the tile before it is described", {RACE, UNINITIALISED, "not uniform"}, [edit(PRODUCER, "    ptx::sync_warp();  // the other lanes read the tile too\n", "")]),
    ("every lane of the producer loads queries", {ARRIVALS, RACE, BYTES}, [edit(PRODUCER, "      if (!issuer_) continue;\n", "")]),
    ("lane 1 takes the ticket", {"ticket of another lane"}, [edit(SCHEDULER, "if (lane_ == 0) next_ = ptx::take_ticket", "if (lane_ == 1) next_ = ptx::take_ticket")]),
    # ---- consumers: waits
    ("tile read before it is announced", {RACE, UNINITIALISED}, [edit(CONSUMER, "      ptx::wait(shared_.tile_full[slot_.stage], slot_.parity);\n", "")]),
    ("consumer waits for the wrong parity of tile_full", {DEADLOCK, RACE, UNINITIALISED}, [edit(CONSUMER, "ptx::wait(shared_.tile_full[slot_.stage], slot_.parity)", "ptx::wait(shared_.tile_full[slot_.stage], slot_.parity ^ 1)")]),
    ("consumer's tile slot stands still", {DEADLOCK, RACE, ARRIVALS, UNINITIALISED}, [edit(CONSUMER, "      slot_.next();\n", "")]),
    ("wait for the query left out", {EARLY}, [edit(CONSUMER, "    ptx::wait(shared_.query_full[consumer_], query_parity_);\n    ptx::wait(", "    ptx::wait(")]),
    ("wait for the first key left out", {EARLY}, [edit(CONSUMER, "ptx::wait(shared_.key_full[key_.stage], key_.parity); ptx::wgmma_fence(scores_);", "ptx::wgmma_fence(scores_);")]),
    ("wait for a key left out", {EARLY}, [edit(CONSUMER, "    ptx::wait(shared_.key_full[key_.stage], key_.parity);  // line 8\n", "")]),
    ("wrong parity of key_full", {EARLY, DEADLOCK}, [edit(CONSUMER, "ptx::wait(shared_.key_full[key_.stage], key_.parity);  // line 8", "ptx::wait(shared_.key_full[key_.stage], key_.parity ^ 1);")]),
    ("wait for a value left out", {EARLY}, [edit(CONSUMER, "    ptx::wait(shared_.value_full[value_.stage], value_.parity);  // line 10\n", "")]),
    ("wait for the last value left out", {EARLY}, [edit(CONSUMER, "ptx::wait(shared_.value_full[value_.stage], value_.parity); ptx::wgmma_fence(output_,", "ptx::wgmma_fence(output_,")]),
    ("consumer's query parity never flips", {EARLY, DEADLOCK}, [edit(CONSUMER, "    query_parity_ ^= 1;\n", "")]),
    # ---- consumers: wgmma
    ("wgmma.fence of a step left out", {NO_FENCE}, [edit(CONSUMER, "    ptx::wgmma_fence(scores_, output_, weights_);\n", "")]),
    ("wgmma.fence doesn't name the weights", {NO_FENCE}, [edit(CONSUMER, "ptx::wgmma_fence(scores_, output_, weights_)", "ptx::wgmma_fence(scores_, output_)")]),
    ("wgmma.fence doesn't name the output", {NO_FENCE}, [edit(CONSUMER, "ptx::wgmma_fence(scores_, output_, weights_)", "ptx::wgmma_fence(scores_, weights_)")]),
    ("scores not waited for", {TOUCHED}, [edit(CONSUMER, "    ptx::wgmma_wait<1>(scores_);                                 // line 12\n", "")]),
    ("wait doesn't name the scores", {TOUCHED}, [edit(CONSUMER, "ptx::wgmma_wait<1>(scores_);                                 // line 12", "ptx::wgmma_wait<1>();")]),
    ("wait for the scores leaves two groups", {IN_FLIGHT}, [edit(CONSUMER, "ptx::wgmma_wait<1>(scores_);                                 // line 12", "ptx::wgmma_wait<2>(scores_);")]),
    ("output not waited for", {TOUCHED, OVERWRITE, "operand changed in flight"}, [edit(CONSUMER, "    ptx::wgmma_wait<0>(output_, weights_);                                                           // line 14\n", "")]),
    ("wait for the output leaves a group", {IN_FLIGHT}, [edit(CONSUMER, "ptx::wgmma_wait<0>(output_, weights_);                                                           // line 14", "ptx::wgmma_wait<1>(output_, weights_);")]),
    ("scores' commit left out", {IN_FLIGHT}, [edit(CONSUMER, "k != 0); ptx::wgmma_commit();", "k != 0);")]),
    ("output's commit left out", {IN_FLIGHT, TOUCHED, "missing wgmma wait"}, [edit(CONSUMER, "true); } ptx::wgmma_commit();", "true); }")]),
    ("first product accumulates on what the registers held", {NUMBERS}, [edit(CONSUMER, "k != 0); ptx::wgmma_commit();", "true); ptx::wgmma_commit();")]),
    ("output overwritten instead of accumulated", {NUMBERS}, [edit(CONSUMER, "true); } ptx::wgmma_commit();", "k != 0); } ptx::wgmma_commit();")]),
    ("output not cleared", {NUMBERS}, [edit(CONSUMER, "    clear_output();\n    if (needs_mask", "    if (needs_mask")]),
    ("query descriptor takes the key's chunk stride", {NUMBERS, UNINITIALISED, EARLY, OVERWRITE}, [edit(CONSUMER, "ptx::advance(query, QueryLayout::step_offset(64, k))", "ptx::advance(query, QueryLayout::step_offset(config.tile_key, k))")]),
    ("key descriptor takes the query's chunk stride", {NUMBERS}, [edit(CONSUMER, "QueryLayout::step_offset(config.tile_key, k)", "QueryLayout::step_offset(64, k)")]),
    ("value descriptor advances half", {NUMBERS}, [edit(CONSUMER, "k * 16 * ValueLayout::row_bytes", "k * 8 * ValueLayout::row_bytes")]),
    ("value descriptor begins inside a swizzle pattern", {MISALIGNED}, [edit(CONSUMER, "k * 16 * ValueLayout::row_bytes", "k * 16 * ValueLayout::row_bytes + ValueLayout::row_bytes")]),
    ("value's leading offset wrong", {NUMBERS, EARLY, UNINITIALISED, OVERWRITE}, [edit(CONSUMER, "shared_.value[value_.stage], config.tile_key * ValueLayout::row_bytes", "shared_.value[value_.stage], 64 * ValueLayout::row_bytes")]),
    ("value taken as K-major", {NUMBERS, OUTSIDE, EARLY, UNINITIALISED, OVERWRITE}, [edit(CONSUMER, "ptx::wgmma<Element, ptx::Major::MN>(output_", "ptx::wgmma<Element, ptx::Major::K>(output_")]),
    ("mask lets one key too many through", {NUMBERS}, [edit(CONSUMER, "if (fragment_column(0, i) >= end[fragment_upper(i)])", "if (fragment_column(0, i) > end[fragment_upper(i)])")]),
    # ---- consumers: releases and turns
    ("key released before its wgmma is waited for", {OVERWRITE}, [edit(CONSUMER, "    ptx::wgmma_wait<1>(scores_);                                 // line 12\n    release_key();\n", "    release_key();\n    ptx::wgmma_wait<1>(scores_);\n")]),
    ("value released before its wgmma is waited for", {OVERWRITE}, [edit(CONSUMER, "    ptx::wgmma_wait<0>(output_, weights_);                                                           // line 14\n    release_value();\n", "    release_value();\n    ptx::wgmma_wait<0>(output_, weights_);\n")]),
    ("every lane releases a key", {ARRIVALS, OVERWRITE, DEADLOCK}, [edit(CONSUMER, "    if (lane_ == 0) ptx::arrive(shared_.key_empty[key_.stage]);", "    ptx::arrive(shared_.key_empty[key_.stage]);")]),
    ("key never released", {DEADLOCK}, [edit(CONSUMER, "    if (lane_ == 0) ptx::arrive(shared_.key_empty[key_.stage]);\n", "")]),
    ("value never released", {DEADLOCK}, [edit(CONSUMER, "    if (lane_ == 0) ptx::arrive(shared_.value_empty[value_.stage]);\n", "")]),
    ("key released on the value's barrier", {DEADLOCK, ARRIVALS, OVERWRITE}, [edit(CONSUMER, "ptx::arrive(shared_.key_empty[key_.stage])", "ptx::arrive(shared_.value_empty[key_.stage])")]),
    ("consumer's key ring stands still", {DEADLOCK, EARLY, ARRIVALS, OVERWRITE}, [edit(CONSUMER, "    key_.next();\n", "")]),
    ("query never released", {DEADLOCK}, [edit(CONSUMER, "    if (lane_ == 0) ptx::arrive(shared_.query_empty[consumer_]);\n", "")]),
    ("query released with the first key", {OVERWRITE, ARRIVALS, EARLY}, [edit(CONSUMER, "ptx::wgmma_fence(); // without it", "ptx::wgmma_fence(); release_query(); query_parity_ ^= 1; // without it")]),
    ("tile never released", {DEADLOCK}, [edit(CONSUMER, "      if (lane_ == 0) ptx::arrive(shared_.tile_empty[slot_.stage]);\n", "")]),
    ("the warp's barrier before it releases a tile left out: the epilogue's barriers come after every read but the releasing lane's", {EQUIVALENT}, [edit(CONSUMER, "      ptx::sync_warp();  // every lane has read the tile\n", "")]),
    ("first turn never given", {DEADLOCK}, [edit(CONSUMER, "ptx::barrier_arrive(turn_barrier(0), 256);", "{}")]),
    ("turn never handed over", {DEADLOCK}, [edit(CONSUMER, "      if (GivesTurn::value && k == config.tile_key / 16 - 1) give_turn();\n", "")]),
    ("turn handed to oneself", {DEADLOCK, CLASH}, [edit(CONSUMER, "turn_barrier(consumer_ + 1 == config.consumers ? 0 : consumer_ + 1)", "turn_barrier(consumer_)")]),
    ("turn's barrier counts 288 threads", {CLASH, DEADLOCK}, [edit(CONSUMER, "ptx::barrier_sync(turn_barrier(consumer_), 256)", "ptx::barrier_sync(turn_barrier(consumer_), 288)")]),
    ("turn's barrier has an id too many", {DEADLOCK, CLASH}, [edit(BARRIERS, "return 1 + consumer; }", "return 2 + consumer; }")]),
    ("named barriers share ids", {CLASH, DEADLOCK, RACE, OVERWRITE}, [edit(BARRIERS, "return 1 + consumers + consumer; }", "return 1 + consumer; }")]),
    # ---- epilogue
    ("output buffer rewritten while its store reads it", {OVERWRITE}, [edit(EPILOGUE, "      if (issuer && piece == 0) ptx::bulk_wait_read<0>();\n", "")]),
    ("barrier after that wait left out", {OVERWRITE}, [edit(EPILOGUE, "      ptx::barrier_sync(barrier, 128);\n      stage(", "      stage(")]),
    ("proxy fence before the store left out", {NO_PROXY_FENCE}, [edit(EPILOGUE, "      ptx::fence_proxy_async();\n", "")]),
    ("barrier before the store left out", {RACE, UNINITIALISED, NO_PROXY_FENCE}, [edit(EPILOGUE, "      ptx::fence_proxy_async();\n      ptx::barrier_sync(barrier, 128);\n", "      ptx::fence_proxy_async();\n")]),
    ("barrier before the proxy fence: the issuer's own fence lies on the causality path too (PTX ISA, Causality Order)", {EQUIVALENT}, [edit(EPILOGUE, "      ptx::fence_proxy_async();\n      ptx::barrier_sync(barrier, 128);\n", "      ptx::barrier_sync(barrier, 128);\n    ptx::fence_proxy_async();\n")]),
    ("every lane stores the output", {"missing bulk wait", OVERWRITE}, [edit(EPILOGUE, "const bool issuer = warp == 0 && lane == 0;", "const bool issuer = lane == 0;")]),
    ("output's group never committed", {"missing bulk wait", OVERWRITE}, [edit(EPILOGUE, "      ptx::bulk_commit();\n", "")]),
    ("last stores not waited for", {"missing bulk wait"}, [edit(CONSUMER, "    if (warp_ == 0 && lane_ == 0) ptx::bulk_wait<0>();", "    {}")]),
    ("row guard of the LSE left out", {OUTSIDE, "race in global memory"}, [edit("forward/epilogue_rows.cuh", "      if (row() + 8 * r < tile.rows)\n", "")]),
    ("swizzle forgotten in the epilogue", {NUMBERS}, [edit(EPILOGUE, "swizzled_offset(row, step % Layout::steps * 2 + (lane >> 4), Layout::row_bytes)", "(row * Layout::row_bytes + (step % Layout::steps * 2 + (lane >> 4)) * 16)")]),
    ("warps stage the same rows", {RACE, UNINITIALISED}, [edit(EPILOGUE, "16 * warp + (lane & 15)", "(lane & 15)")]),
    ("output stored from the wrong chunk", {NUMBERS, OUTSIDE, UNINITIALISED}, [edit(EPILOGUE, "staged + Layout::chunk_offset(64, c) / 2", "staged + Layout::chunk_offset(64, c) / 4")]),
    ("output stored one head on", {NUMBERS}, [edit(EPILOGUE, "tile.head, tile.map_batch, tile.map_wrap", "tile.head + 1, tile.map_batch, tile.map_wrap")]),
    # ---- scheduler
    ("lanes take tiles of their own", {"undefined arithmetic", "not uniform", DEADLOCK, RACE, NUMBERS, EARLY}, [edit(SCHEDULER, "ptx::shuffle(next_, 0) + (first_", "next_ + (first_")]),
    ("dynamic schedule begins a tile late", {NUMBERS}, [edit(SCHEDULER, "(first_ ? 0 : ptx::grid_size())", "(first_ ? 0 : ptx::grid_size() + 1)")]),
]

# The output staged by pieces.
MUTATIONS_OF_PIECES = [
    ("piece staged while the store before it reads", {OVERWRITE}, [edit(EPILOGUE, "      if (issuer && piece >= config.output_buffers) ptx::bulk_wait_read<config.output_buffers - 1>();\n", "")]),
    ("barrier after that wait left out", {OVERWRITE}, [edit(EPILOGUE, "      ptx::barrier_sync(barrier, 128);\n      stage(", "      stage(")]),
    ("one store too many in flight", {OVERWRITE}, [edit(EPILOGUE, "bulk_wait_read<config.output_buffers - 1>", "bulk_wait_read<config.output_buffers>")]),
    ("pieces stored to the first one's columns", {NUMBERS, "race in global memory"}, [edit(EPILOGUE, "(piece * piece_chunks + c) * Layout::chunk_columns", "c * Layout::chunk_columns")]),
]

GROUPS = [
    {"kernel": "forward_bf16_d128", "others": ["copy_16bit"], "options": "sms=1", "mutations": MUTATIONS,
     "problems": ["--random 1,300,2,128 --key-heads 1", "--random 1,150,2,128 --key-length 700", "--random 1,333,2,128 --causal", "--random 1,300,2,128 --cu-seqlens-q 0,90,300 --cu-seqlens-k 0,170,300 --causal"]},
    {"kernel": "forward_bf16_d256", "others": ["copy_16bit"], "options": "sms=1", "mutations": MUTATIONS_OF_PIECES, "problems": ["--random 1,300,2,256", "--random 1,333,2,256 --causal"]},
]

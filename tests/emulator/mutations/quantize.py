"""Faults to plant in the quantiser's kernels. A test compares every byte with the CPU's, so that most are wrong numbers."""
from kinds import NUMBERS, OUTSIDE, RACE, UNINITIALISED, edit

ELEMENTS = "quantize/elements.cuh"
ROWS = "quantize/rows.cuh"
VALUE = "quantize/value.cuh"
SEARCH = "quantize/search.cuh"

OF_ROWS = [
    ("barrier before the warps' maxima are read left out", {RACE, UNINITIALISED}, [edit(ELEMENTS, "ptx::sync_block(); x = lane < ptx::block_threads() >> 5", "x = lane < ptx::block_threads() >> 5")]),
    ("heads that follow each other share an array of maxima", {RACE}, [edit(ELEMENTS, "shared.largest[head & 1]", "shared.largest[0]")]),
    ("first warp's maximum taken for the block's", {NUMBERS}, [edit(ELEMENTS, "x = lane < ptx::block_threads() >> 5 ? of_warps[lane] : 0;", "x = of_warps[0];")]),
    ("Hadamard matrix's factor left out", {NUMBERS}, [edit(ELEMENTS, "factor = factor_of(scale, s.norm);", "factor = factor_of(scale, 1);")]),
    ("scale stored one block on", {NUMBERS, OUTSIDE, RACE}, [edit(ELEMENTS, "index * s.scales.block;", "(index + 1) * s.scales.block;")]),
    ("signs left out", {NUMBERS}, [edit(ROWS, "if (p_.hadamard > 1 && !rotates && used) flip(raw);", "")]),
    ("butterflies between threads end a step early", {NUMBERS}, [edit(ROWS, "distance * piece < least(piece << p_.lane_bits, p_.hadamard)", "2 * distance * piece < least(piece << p_.lane_bits, p_.hadamard)")]),
    ("rows behind the used ones are quantised", {NUMBERS, OUTSIDE}, [edit(ROWS, "const bool used = row < block_.used;", "const bool used = row < block_.rows;")]),
    ("rows behind a sequence's last one are written", {NUMBERS, OUTSIDE, RACE, "race in global memory"}, [edit(ROWS, "held = row < block_.rows ? pieces() : 0", "held = row < p_.source.blocks.tile ? pieces() : 0")]),
    ("pieces exchanged with the wrong thread", {NUMBERS, OUTSIDE}, [edit(ROWS, "ptx::shuffle_xor(static_cast<int>(given.low), 1)", "ptx::shuffle_xor(static_cast<int>(given.low), 2)")]),
    ("one infinite element sets the scale", {NUMBERS}, [edit(ROWS, "return ptx::any(!finite(result)) ? largest_finite() : result;", "return result;")]),
]

OF_VALUE = [
    ("columns exchanged with the wrong thread", {NUMBERS}, [edit(VALUE, "static_cast<int>(upper ? a[w] : b[w]), 1)", "static_cast<int>(upper ? a[w] : b[w]), 2)")]),
    ("keys behind the last one are read", {NUMBERS, OUTSIDE}, [edit(VALUE, "if (k < keys) raw[k] = *reinterpret_cast<const uint32_t*>", "raw[k] = *reinterpret_cast<const uint32_t*>")]),
    ("mean taken out of the padding too", {NUMBERS}, [edit(VALUE, "k < keys ? x_[0][k] - low : 0;", "x_[0][k] - low;")]),
    ("groups of packed sequences overlap", {NUMBERS, OUTSIDE, "race in global memory"}, [edit(VALUE, "if (p_.packed_sequences) group += first_block(block_.offset, value_group, block_.batch);", "if (p_.packed_sequences) group += block_.offset / value_group;")]),
    ("keys of a group in their own order", {NUMBERS}, [edit(VALUE, "x[packed_key(4 * word + 1)] * factor", "x[4 * word + 1] * factor")]),
    ("scales of blocks aren't powers of two", {NUMBERS}, [edit(ELEMENTS, "s.norm, s.largest, s.power_of_two)", "s.norm, s.largest, false)")]),
]

OF_COLUMNS = [
    ("barrier before the lanes' sums are read left out", {RACE, UNINITIALISED}, [edit(SEARCH, "ptx::sync_block(); float* found =", "float* found =")]),
    ("elements that aren't finite are summed", {NUMBERS}, [edit(SEARCH, "if (!finite(x[i % 2]) || lane", "if (lane")]),
    ("rows behind the used ones are summed", {NUMBERS, OUTSIDE}, [edit(SEARCH, "lane + k * mean_lanes >= block.used) continue;", "false) continue;"), edit(SEARCH, "if (row < block.used) raw[k]", "raw[k]")]),
]

OF_COMBINE = [
    ("barrier before the slots' sums are read left out", {RACE, UNINITIALISED}, [edit(SEARCH, "ptx::sync_block(); if (slot == 0", "if (slot == 0")]),
    ("sums overwritten while they are read", {RACE}, [edit(SEARCH, "} ptx::sync_block(); } if (!p.extremes) return;", "} } if (!p.extremes) return;")]),
    ("mean of a sequence's room, not of what is used", {NUMBERS}, [edit(SEARCH, "forward::locate(p.rows, sequence, p.batch).used;", "forward::locate(p.rows, sequence, p.batch).rows;")]),
    ("largest magnitude of what the mean was left in", {NUMBERS}, [edit(SEARCH, "ptx::magnitude(largest - mean)", "ptx::magnitude(largest)")]),
    ("given magnitudes taken from the first head", {NUMBERS}, [edit(SEARCH, "p.given.data[sequence * p.given.batch + head * p.given.head]", "p.given.data[0]")]),
]

CASES = "../quantize/emulator_quantize All/EmulatedQuantiser.GivesTheBytesOfTheCpu/*_"  # then the case's name


def group(kernel, mutations, cases):
    others = [f"quantize_{name}" for name in ("rows", "value", "columns", "combine") if f"quantize_{name}" != kernel]
    return {"kernel": kernel, "others": others, "options": "sms=1", "mutations": mutations, "tests": [CASES + case for case in cases]}


GROUPS = [
    group("quantize_rows", OF_ROWS, ["dims128", "granularity2_packed_used", "many_heads*", "L5_infinite_e4m3"]),
    group("quantize_value", OF_VALUE, ["dims64", "granularity2_mean_packed_used"]),
    group("quantize_columns", OF_COLUMNS, ["granularity1_mean_used", "L5_infinite_int8_head"]),
    group("quantize_combine", OF_COMBINE, ["dims256_fp16_mean_rows", "granularity1_mean_packed_used", "amax1_mean"]),
]

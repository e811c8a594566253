"""What may report a planted fault: kinds of the emulator's findings, and two that are none.

NUMBERS means that only the comparison with the oracle sees it (swizzles, descriptors, masks); EQUIVALENT that the program is
still right, for the reason in its name, and nothing may be reported.
"""

NUMBERS = "numbers"
EQUIVALENT = "equivalent"

DEADLOCK = "deadlock"
EARLY = "use before completion"
OVERWRITE = "overwrite while in use"
RACE = "race"
ARRIVALS = "too many arrivals"
BYTES = "transaction bytes"
TOUCHED = "accumulator touched in flight"
IN_FLIGHT = "wait names an accumulator still in flight"
NO_FENCE = "missing wgmma fence"
NO_PROXY_FENCE = "missing proxy fence"
CLASH = "barrier id clash"
UNINITIALISED = "uninitialised"
OUTSIDE = "out of bounds"
MISALIGNED = "misaligned descriptor"


def edit(file, old, new):
    """Replaces the only occurrence of a text; white space doesn't matter."""
    return (file, old, new)

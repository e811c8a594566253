"""Prints the tests that a run skipped, grouped by reason, from ctest's JUnit file. Usage: skipped.py FILE"""

import collections
import os
import re
import sys
import xml.etree.ElementTree


def reason(output, fallback):
    """Why a test was skipped: GoogleTest prints the reason on the line after the place, our scripts after SKIPPED."""
    match = re.search(r"SKIPPED: (.+)", output) or re.search(r": Skipped\n(.+)", output)
    return match.group(1).strip() if match else fallback


def main():
    if len(sys.argv) != 2 or not os.path.exists(sys.argv[1]):
        sys.exit("usage: skipped.py FILE (ctest --output-junit FILE writes it)")
    skipped = collections.defaultdict(list)
    total = 0
    for case in xml.etree.ElementTree.parse(sys.argv[1]).getroot().iter("testcase"):
        total += 1
        output = case.findtext("system-out") or ""
        if case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
            skipped[reason(output, "no reason given")].append(case.get("name"))
        else:  # a program with several tests can skip some of them and pass
            for name in set(re.findall(r"\[  SKIPPED \] (\S+?)(?: \(|$)", output, flags=re.MULTILINE)) - {""}:
                if not name.isdigit():
                    skipped[reason(output, "no reason given")].append(f"{case.get('name')}: {name}")
    print(f"Skipped: {sum(map(len, skipped.values()))} of {total} tests" + (", by reason:" if skipped else "."))
    for why, names in sorted(skipped.items()):
        shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        print(f"  {why}: {len(names)} ({shown})")


main()

// What an emulated run leaves besides its Status, which has room for one report: for the command line program, which is
// linked with the library's objects, in the memory of the thread that ran it.
#pragma once

#include <string>
#include <vector>

namespace tandem::internal {

struct EmulatorRecords {
  std::vector<std::string> reports;  // of the last run, in full
  bool wants_trace = false;          // set before a run
  std::string trace;                 // of the last kernel that has shared memory, in Chrome's format
};
inline thread_local EmulatorRecords emulator_records;

}  // namespace tandem::internal

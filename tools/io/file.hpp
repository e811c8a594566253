// Whole files in and out. A file that is written appears complete or not at all.
#pragma once

#include <span>
#include <string>

#include "tools/io/array.hpp"

namespace tandem::tools {

Bytes read_file(const std::string& path);

/// Writes beside `path` and renames, so that a crash or a full disk leaves what was there before.
void write_file(const std::string& path, std::span<const std::byte> bytes);
void write_file(const std::string& path, const std::string& text);

/// Failure unless a file could be created at `path`: asked before long work whose result goes there.
void require_writable(const std::string& path);

bool ends_with(const std::string& path, const char* extension);

}  // namespace tandem::tools

// A picture of the results, drawn by gnuplot through a pipe.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/bench/benchmark.hpp"

namespace tandem::tools {

/// UsageError unless `path` ends in .png or .svg; Failure, with the remedy, where gnuplot isn't installed.
void require_plot(const std::string& path);

/// Lets gnuplot draw what `script` tells it, given the name of the file that it is to write.
void draw(const std::function<std::string(const std::string& output)>& script, const std::string& path);

/// "set terminal" and "set output" for a picture of that size; a string in gnuplot's quotes.
std::string plot_terminal(const std::string& path, const std::string& output, size_t width, size_t height);
std::string plot_quoted(const std::string& text);

/// One panel a head dim and mask, one line a method over the sequence length.
void plot(const std::vector<BenchRow>& rows, const std::string& title, const std::string& path);

/// What gnuplot is told; `output` is the file that it writes.
std::string plot_script(const std::vector<BenchRow>& rows, const std::string& title, const std::string& path,
                        const std::string& output);

}  // namespace tandem::tools

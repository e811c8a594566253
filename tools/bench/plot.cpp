// Plots by gnuplot.
#include "tools/bench/plot.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>

#include "tools/failure.hpp"
#include "tools/io/file.hpp"

namespace tandem::tools {
namespace {

namespace fs = std::filesystem;

bool in_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (access((fs::path(folder) / program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

std::string number(const std::optional<double>& value) { return value ? fmt::format("{:.2f}", *value) : "NaN"; }

}  // namespace

std::string plot_quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("''") : std::string(1, c);
  return result + "'";
}

std::string plot_terminal(const std::string& path, const std::string& output, size_t width, size_t height) {
  return fmt::format("set terminal {} size {},{}\nset output {}\n", ends_with(path, ".png") ? "pngcairo" : "svg", width,
                     height, plot_quoted(output));
}

void require_plot(const std::string& path) {
  if (!ends_with(path, ".png") && !ends_with(path, ".svg")) {
    throw UsageError(fmt::format("--plot: '{}' must end in .png or .svg", path));
  }
  if (!in_path("gnuplot"))
    throw Failure("--plot needs gnuplot, which isn't installed (Debian: apt install gnuplot-nox)");
  require_writable(path);
}

std::string plot_script(const std::vector<BenchRow>& rows, const std::string& title, const std::string& path,
                        const std::string& output) {
  std::map<std::pair<bool, int64_t>, std::string> panels;  // mask, head dim
  for (const BenchRow& row : rows) {
    panels[{row.problem.causal, row.problem.head_dim}] +=
        fmt::format("{} {} {} {}\n", row.problem.seqlen, number(row.tandem), number(row.standard), number(row.cublas));
  }
  const auto any = [&](auto member) {
    return std::any_of(rows.begin(), rows.end(), [&](const BenchRow& row) { return (row.*member).has_value(); });
  };
  const size_t height = any_of(rows.begin(), rows.end(), [](const BenchRow& r) { return r.problem.causal; }) &&
                                any_of(rows.begin(), rows.end(), [](const BenchRow& r) { return !r.problem.causal; })
                            ? 2
                            : 1;
  const size_t width = std::max<size_t>(1, (panels.size() + height - 1) / height);
  std::string script;
  size_t index = 0;
  for (const auto& [panel, data] : panels) script += fmt::format("$panel{} << EOD\n{}EOD\n", index++, data);
  script += plot_terminal(path, output, 420 * width, 340 * height + 40);
  script += fmt::format("set multiplot layout {},{} title {} noenhanced\n", height, width, plot_quoted(title));
  script += "set logscale x 2\nset grid\nset yrange [0:*]\nset xlabel 'sequence length'\nset ylabel 'TFLOP/s'\n";
  script += "set key bottom right\nset style data linespoints\n";
  index = 0;
  for (const auto& [panel, data] : panels) {
    std::string lines = fmt::format("$panel{} using 1:2 title 'tandem' linewidth 2 linecolor rgb '#1f77b4'", index);
    if (any(&BenchRow::standard)) {
      lines += fmt::format(", $panel{} using 1:3 title 'standard' linecolor rgb '#d62728'", index);
    }
    if (any(&BenchRow::cublas)) {
      lines += fmt::format(", $panel{} using 1:4 title 'cuBLAS' dashtype 2 linecolor rgb '#7f7f7f'", index);
    }
    script +=
        fmt::format("set title 'head dim {}, {}'\nplot {}\n", panel.second, panel.first ? "causal" : "full", lines);
    ++index;
  }
  return script + "unset multiplot\nunset output\n";
}

void plot(const std::vector<BenchRow>& rows, const std::string& title, const std::string& path) {
  draw([&](const std::string& output) { return plot_script(rows, title, path, output); }, path);
}

void draw(const std::function<std::string(const std::string&)>& make_script, const std::string& path) {
  // Drawn beside the target and renamed, as every file that the program writes.
  const std::string unfinished = fmt::format("{}.{}.unfinished", path, getpid());
  std::signal(SIGPIPE, SIG_IGN);  // a gnuplot that gives up shows in its exit status
  FILE* pipe = popen("gnuplot", "w");
  if (pipe == nullptr) throw Failure("gnuplot can't be started");
  const std::string script = make_script(unfinished);
  const bool written = std::fwrite(script.data(), 1, script.size(), pipe) == script.size();
  const int status = pclose(pipe);
  std::error_code error;
  if (written && status == 0) fs::rename(unfinished, path, error);
  if (!written || status != 0 || error) {
    std::error_code ignored;
    fs::remove(unfinished, ignored);
    throw Failure(fmt::format("{}: gnuplot couldn't draw the plot", path));
  }
}

}  // namespace tandem::tools

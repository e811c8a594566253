// The progress line.
#include "tools/progress.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace tandem::tools {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto redraw_interval = std::chrono::milliseconds(50);

size_t terminal_columns() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

}  // namespace

std::string progress_line(size_t done, size_t total, double seconds, const std::string& what, size_t columns) {
  constexpr size_t width = 24;
  const size_t filled = total == 0 ? width : std::min(width, done * width / total);
  const auto whole = static_cast<int64_t>(seconds);
  std::string line = fmt::format("[{:#<{}}{:.<{}}] {}/{}  {}:{:02}  {}", "", filled, "", width - filled, done, total,
                                 whole / 60, whole % 60, what);
  if (line.size() > columns) line.resize(columns);
  return line;
}

Progress::Progress(size_t total) : total_(total), terminal_(isatty(STDERR_FILENO) != 0), begin_(Clock::now()) {}

Progress::~Progress() { clear(); }

void Progress::step(const std::string& what) {
  const auto now = Clock::now();
  if (terminal_ && now - drawn_ > redraw_interval) {
    drawn_ = now;
    draw(what);
  }
  ++done_;
}

void Progress::clear() {
  if (!terminal_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
}

void Progress::draw(const std::string& what) {
  const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
  const auto line = progress_line(done_, total_, seconds, what, terminal_columns() - 1);
  std::fputs(("\r\033[K" + line).c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace tandem::tools

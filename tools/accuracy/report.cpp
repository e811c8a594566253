// See report.hpp.
#include "tools/accuracy/report.hpp"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "tools/bench/plot.hpp"

namespace tandem::tools {
namespace {

using nlohmann::json;

json number(double value, const std::string& note) { return note.empty() ? json(value) : json(nullptr); }

}  // namespace

void print_accuracy(const std::vector<AccuracyRow>& rows, const std::vector<LengthRow>& lengths) {
  std::map<std::string, std::string> meaning;
  for (const Method& method : methods()) meaning[method.name] = method.meaning;
  if (!rows.empty()) fmt::print("{:<7}{:<19}{:>10}  {}\n", "data", "method", "RMSE", "");
  for (const AccuracyRow& row : rows) {
    fmt::print("{:<7}{:<19}{:>10}  {}\n", row.data, row.method,
               row.note.empty() ? fmt::format("{:.2e}", row.rmse) : "-",
               row.note.empty() ? meaning[row.method] : row.note);
  }
  if (lengths.empty()) return;
  fmt::print("\n{:>8}{:>12}  {:<28}{:>10}{:>10}{:>10}\n", "keys", "value mean", "method", "RMSE", "relative", "drift");
  for (const LengthRow& row : lengths) {
    fmt::print("{:>8}{:>12}  {:<28}", row.keys, row.value_mean, row.method);
    if (row.note.empty()) {
      fmt::print("{:>10.2e}{:>10.2e}{:>10.1e}\n", row.rmse, row.relative, row.drift);
    } else {
      fmt::print("{}\n", row.note);
    }
  }
  fmt::print("relative: RMSE over the result's root mean square; drift: how much too small the result is as a whole\n");
}

std::string accuracy_json(const std::vector<AccuracyRow>& rows, const std::vector<LengthRow>& lengths,
                          const std::string& device, Backend backend, const std::string& commit) {
  json list = json::array(), study = json::array();
  for (const AccuracyRow& row : rows) {
    list.push_back({{"data", row.data}, {"method", row.method}, {"rmse", number(row.rmse, row.note)}});
    if (!row.note.empty()) list.back()["note"] = row.note;
  }
  for (const LengthRow& row : lengths) {
    study.push_back({{"keys", row.keys},
                     {"value_mean", row.value_mean},
                     {"method", row.method},
                     {"rmse", number(row.rmse, row.note)},
                     {"relative", number(row.relative, row.note)},
                     {"drift", number(row.drift, row.note)}});
    if (!row.note.empty()) study.back()["note"] = row.note;
  }
  const json all = {{"device", device}, {"backend", name(backend)}, {"commit", commit}, {"version", version()},
                    {"rows", list},     {"lengths", study}};
  return all.dump(2) + "\n";
}

std::string accuracy_script(const std::vector<AccuracyRow>& rows, const std::vector<LengthRow>& lengths,
                            const std::string& title, const std::string& path, const std::string& output) {
  std::map<std::string, std::map<std::string, double>> by_method;
  std::vector<std::string> order;
  for (const AccuracyRow& row : rows) {
    if (!row.note.empty()) continue;
    if (by_method.find(row.method) == by_method.end()) order.push_back(row.method);
    by_method[row.method][row.data] = row.rmse;
  }
  std::string script = "$bars << EOD\n";
  for (const std::string& method : order) {
    const auto value = [&](const char* data) {
      const auto found = by_method[method].find(data);
      return found == by_method[method].end() ? std::string("NaN") : fmt::format("{:.4e}", found->second);
    };
    script += fmt::format("{} {} {}\n", plot_quoted(method), value("paper"), value("real"));
  }
  script += "EOD\n";
  std::map<std::string, std::string> curves;
  for (const LengthRow& row : lengths) {
    if (!row.note.empty()) continue;
    curves[fmt::format("{}, value mean {}", row.method, row.value_mean)] +=
        fmt::format("{} {:.4e}\n", row.keys, row.relative);
  }
  size_t index = 0;
  for (const auto& [curve, data] : curves) script += fmt::format("$curve{} << EOD\n{}EOD\n", index++, data);
  script += plot_terminal(path, output, 1100, 460);
  script += fmt::format("set multiplot layout 1,2 title {} noenhanced\n", plot_quoted(title));
  script += "set grid y\nset logscale y\nset format y '%.0e'\nset ylabel 'RMSE against float64'\n";
  script +=
      "set style data histograms\nset style fill solid 0.7\nset xtics rotate by -30 noenhanced\nset key noenhanced\n";
  if (!order.empty()) script += "plot $bars using 2:xtic(1) title 'paper', $bars using 3 title 'real'\n";
  script += "set logscale x 2\nset xtics norotate\nset xlabel 'keys'\nset ylabel 'relative error'\n";
  script += "set style data linespoints\nset key top left\n";
  std::string lines;
  index = 0;
  for (const auto& [curve, data] : curves) {
    lines += fmt::format("{}$curve{} using 1:2 title {}", lines.empty() ? "" : ", ", index++, plot_quoted(curve));
  }
  if (!lines.empty()) script += "plot " + lines + "\n";
  return script + "unset multiplot\nunset output\n";
}

}  // namespace tandem::tools

// Accuracy results as a table, as JSON and as a plot.
#pragma once

#include <string>
#include <vector>

#include "tools/accuracy/measure.hpp"

namespace tandem::tools {

void print_accuracy(const std::vector<AccuracyRow>& rows, const std::vector<LengthRow>& lengths);
/// {"device", "backend", "commit", "version", "rows": [{"data", "method", "rmse"}], "lengths": [...]}; rmse is null
/// where there is none.
std::string accuracy_json(const std::vector<AccuracyRow>& rows, const std::vector<LengthRow>& lengths,
                          const std::string& device, Backend backend, const std::string& commit);
/// What gnuplot is told: a panel of bars, and one of errors over the number of keys.
std::string accuracy_script(const std::vector<AccuracyRow>& rows, const std::vector<LengthRow>& lengths,
                            const std::string& title, const std::string& path, const std::string& output);

}  // namespace tandem::tools

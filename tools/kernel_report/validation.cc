#include "tools/kernel_report/validation.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"

namespace tandem::report {
namespace {

using Json = nlohmann::ordered_json;

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// "synthetic:gemma3-27b?type=q4_0" -> "gemma3-27b q4_0"; another model's name as it is.
std::string ShortName(const std::string& model) {
  const size_t colon = model.find(':'), type = model.find("?type=");
  if (colon == std::string::npos || type == std::string::npos) return model;
  const std::string size = model.substr(colon + 1, type - colon - 1);
  return size + " " + model.substr(type + 6, model.find('&', type) - type - 6);
}

}  // namespace

std::string MeasuredStep::Name() const {
  if (prompt > 0) return absl::StrFormat("pp%d", prompt);
  std::string name = depth == 0 ? "tg" : absl::StrFormat("tg@d%d", depth);
  if (batch > 1) name += absl::StrFormat(" b%d", batch);
  return name;
}

absl::StatusOr<Measurements> ParseMeasurements(const std::string& text, const std::string& name) {
  Measurements measurements;
  try {
    const Json json = Json::parse(text);
    measurements.chip = json.at("chip");
    measurements.source = json.at("source");
    measurements.median_error = json.at("median_error");
    for (const Json& step : json.at("steps")) {
      measurements.steps.push_back({.model = step.at("model"),
                                    .max_rows = step.at("max_rows"),
                                    .prompt = step.value("prompt", 0u),
                                    .batch = step.value("batch", 1u),
                                    .depth = step.value("depth", 0u),
                                    .tokens_per_second = step.at("tokens_per_second")});
      const MeasuredStep& read = measurements.steps.back();
      if (!(read.tokens_per_second > 0) || read.max_rows == 0 || read.batch == 0) {
        return absl::InvalidArgumentError(
            absl::StrFormat("%s: step %d: tokens_per_second, max_rows and batch are above zero",
                            name, measurements.steps.size()));
      }
    }
  } catch (const nlohmann::json::exception& error) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: %s", name, error.what()));
  }
  if (measurements.steps.empty()) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: no steps", name));
  }
  return measurements;
}

ErrorSummary Summarise(const std::vector<ValidatedStep>& steps) {
  std::vector<double> errors, sizes;
  for (const ValidatedStep& step : steps) {
    errors.push_back(step.Error());
    sizes.push_back(std::abs(errors.back()));
  }
  const double largest = *std::ranges::max_element(sizes);
  return {.median = Median(sizes), .largest = largest, .bias = Median(errors)};
}

std::string ValidationAsMarkdown(const Measurements& measurements,
                                 const std::vector<ValidatedStep>& steps) {
  std::string text =
      "| model | step | measured, tok/s | prediction, tok/s | error | at best, tok/s | bound |\n";
  text += "|---|---|---|---|---|---|---|\n";
  for (const ValidatedStep& step : steps) {
    text += absl::StrFormat(
        "| %s | %s | %.0f | %.0f | %+.0f%% | %.0f | %s |\n", ShortName(step.measured.model),
        step.measured.Name(), step.measured.tokens_per_second, step.predicted.tokens_per_second(),
        100 * step.Error(), step.predicted.tokens / step.predicted.at_best, step.predicted.bound);
  }
  const ErrorSummary summary = Summarise(steps);
  return text +
         absl::StrFormat(
             "\n%d steps measured on %s (%s): the prediction's error is %.0f%% in the median "
             "and at most %.0f%%; its bias is %+.0f%%.\n",
             steps.size(), measurements.chip, measurements.source, 100 * summary.median,
             100 * summary.largest, 100 * summary.bias);
}

std::string ValidationAsJson(const Measurements& measurements,
                             const std::vector<ValidatedStep>& steps) {
  Json list = Json::array();
  for (const ValidatedStep& step : steps) {
    list.push_back({{"model", step.measured.model},
                    {"test", step.measured.Name()},
                    {"measured_tokens_per_second", step.measured.tokens_per_second},
                    {"predicted_tokens_per_second", step.predicted.tokens_per_second()},
                    {"error", step.Error()},
                    {"at_best_tokens_per_second", step.predicted.tokens / step.predicted.at_best},
                    {"bound", step.predicted.bound}});
  }
  const ErrorSummary summary = Summarise(steps);
  return Json{{"chip", measurements.chip},      {"source", measurements.source},
              {"median_error", summary.median}, {"largest_error", summary.largest},
              {"bias", summary.bias},           {"steps", std::move(list)}}
             .dump(2) +
         "\n";
}

}  // namespace tandem::report

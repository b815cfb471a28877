#include "tools/kernel_report/baseline.h"

#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"

namespace tandem::report {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kSlack = 1.05;
constexpr size_t kNumFigures = 5;
struct Figure {
  const char* name;
  bool compared;
  bool higher_is_better;
};
constexpr Figure kFigures[kNumFigures] = {
    {"vector registers", false, false},
    {"subgroups a SIMD", true, true},
    {"latency", true, false},
    {"inverse throughput", true, false},
    {"main loop's clocks a thousand multiply-adds", true, false}};
using Figures = std::array<double, kNumFigures>;
using ByName = std::map<std::string, Figures>;

Figures FiguresOf(const KernelFacts& facts) {
  const double macs = facts.assembly.loop.macs;
  const double loop = macs > 0 ? facts.loop.most() / macs * 1000 : 0;
  return {static_cast<double>(facts.vgprs), static_cast<double>(facts.waves_per_simd),
          static_cast<double>(facts.latency), static_cast<double>(facts.inverse_throughput),
          std::round(loop * 100) / 100};
}

std::map<std::string, ByName> Collect(const std::vector<ModelReport>& reports) {
  std::map<std::string, ByName> chips;
  for (const ModelReport& report : reports) {
    for (const KernelFacts& facts : report.kernels) {
      if (facts.compiled) chips[std::string(report.chip.name)][facts.name] = FiguresOf(facts);
    }
  }
  return chips;
}

void CompareKernel(const std::string& what, const Figures& before, const Figures& now,
                   std::vector<std::string>& faults) {
  for (size_t i = 0; i < kNumFigures; ++i) {
    if (!kFigures[i].compared) continue;
    const bool worse =
        kFigures[i].higher_is_better ? now[i] * kSlack < before[i] : now[i] > before[i] * kSlack;
    if (!worse) continue;
    faults.push_back(absl::StrFormat("%s: %s %g, %g in the baseline", what, kFigures[i].name,
                                     now[i], before[i]));
  }
}

}  // namespace

std::string MakeBaseline(const std::vector<ModelReport>& reports) {
  // A kernel a line, so that changes can be read.
  std::string text = absl::StrFormat("{\n \"driver\": %s,\n \"chips\": {",
                                     Json(reports.empty() ? "" : reports[0].driver).dump());
  const char* before_chip = "\n";
  for (const auto& [chip, kernels] : Collect(reports)) {
    text += absl::StrFormat("%s  %s: {", before_chip, Json(chip).dump());
    before_chip = ",\n";
    const char* before_kernel = "\n";
    for (const auto& [name, figures] : kernels) {
      text +=
          absl::StrFormat("%s   %s: %s", before_kernel, Json(name).dump(), Json(figures).dump());
      before_kernel = ",\n";
    }
    text += "\n  }";
  }
  return text + "\n }\n}\n";
}

absl::StatusOr<BaselineCheck> CompareWithBaseline(const std::string& text, const std::string& name,
                                                  const std::vector<ModelReport>& reports) {
  const Json json = Json::parse(text, nullptr, false);
  const auto invalid = [&name](const std::string& what) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: %s; --write-baseline makes one", name, what));
  };
  if (!json.is_object() || !json.contains("driver") || !json["driver"].is_string() ||
      !json.contains("chips") || !json["chips"].is_object()) {
    return invalid("no baseline of kernel_report");
  }
  BaselineCheck check;
  const std::string driver = json["driver"];
  if (!reports.empty() && reports[0].driver != driver) {
    check.note = absl::StrFormat("not compared: the baseline is of %s, this is %s", driver,
                                 reports[0].driver);
    return check;
  }
  for (const auto& [chip, kernels] : Collect(reports)) {
    if (!json["chips"].contains(chip)) {
      check.faults.push_back(absl::StrFormat("%s: the baseline has no such chip", chip));
      continue;
    }
    const Json& before = json["chips"][chip];
    for (const auto& [kernel, figures] : kernels) {
      const std::string what = absl::StrFormat("%s: %s", chip, kernel);
      if (!before.contains(kernel)) {
        check.faults.push_back(what + ": not in the baseline");
        continue;
      }
      const Json& known = before[kernel];
      if (!known.is_array() || known.size() != kNumFigures) return invalid(what + ": five figures");
      Figures then;
      for (size_t i = 0; i < kNumFigures; ++i) {
        if (!known[i].is_number()) return invalid(what + ": numbers");
        then[i] = known[i];
      }
      CompareKernel(what, then, figures, check.faults);
    }
    for (const auto& [kernel, unused] : before.items()) {
      if (kernels.contains(kernel)) continue;
      check.faults.push_back(
          absl::StrFormat("%s: %s: in the baseline, and no longer made", chip, kernel));
    }
  }
  return check;
}

}  // namespace tandem::report

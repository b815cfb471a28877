#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "services/common/base/text_table.h"
#include "tools/kernel_report/report.h"

namespace tandem::report {
namespace {

using Json = nlohmann::ordered_json;

Json InstructionsAsJson(const InstructionMix& mix) {
  return {{"total", mix.total},
          {"vector", mix.vector},
          {"dot", mix.dot},
          {"matrix", mix.matrix},
          {"fma", mix.fma},
          {"integer", mix.integer},
          {"multiply", mix.multiply},
          {"transcendental", mix.transcendental},
          {"scalar", mix.scalar},
          {"vector_loads", mix.vector_loads},
          {"vector_stores", mix.vector_stores},
          {"scalar_loads", mix.scalar_loads},
          {"shared", mix.shared},
          {"scratch", mix.scratch},
          {"waits", mix.waits},
          {"branches", mix.branches},
          {"barriers", mix.barriers}};
}

Json KernelAsJson(const KernelFacts& facts) {
  Json json = {{"name", facts.name},
               {"kernel", std::string(gpu::Traits(facts.kernel).name)},
               {"compiled", facts.compiled}};
  if (!facts.compiled) return json;
  json["spilled_vgprs"] = facts.spilled_vgprs;
  json["spilled_sgprs"] = facts.spilled_sgprs;
  json["scratch_bytes"] = facts.scratch_bytes;
  json["vgprs"] = facts.vgprs;
  json["sgprs"] = facts.sgprs;
  json["waves_per_simd"] = facts.waves_per_simd;
  json["lds_bytes"] = facts.lds_bytes;
  json["code_bytes"] = facts.code_bytes;
  json["instructions"] = InstructionsAsJson(facts.assembly.all);
  json["estimates"] = {{"latency_clocks", facts.latency},
                       {"inverse_throughput_clocks", facts.inverse_throughput}};
  if (facts.assembly.loop.total > 0) {
    json["main_loop"] = {{"instructions", InstructionsAsJson(facts.assembly.loop)},
                         {"multiply_adds", facts.assembly.loop.macs},
                         {"clocks", facts.loop.most()},
                         {"bound", std::string(facts.loop.bound())}};
  }
  json["faults"] = FaultsOf(facts);
  return json;
}

Json StepAsJson(const StepPrediction& step, const Chip& chip) {
  Json kernels = Json::array();
  for (const KernelTime& kernel : step.kernels) {
    kernels.push_back({{"name", kernel.name},
                       {"dispatches", kernel.dispatches},
                       {"seconds", kernel.seconds},
                       {"seconds_between", kernel.before},
                       {"bound", kernel.bound},
                       {"seconds_by_limit",
                        {{"memory", kernel.limits.memory},
                         {"cache", kernel.limits.cache},
                         {"loop", kernel.limits.loop},
                         {"latency", kernel.limits.latency}}},
                       {"bytes", kernel.work.weight_bytes + kernel.work.kv_bytes},
                       {"flops", kernel.work.useful_flops}});
  }
  return {{"test", step.name},
          {"predicted", true},
          {"seconds", step.seconds},
          {"seconds_at_best", step.at_best},
          {"tokens_per_second", step.tokens_per_second()},
          {"seconds_between_dispatches", step.between},
          {"dispatches", step.dispatches},
          {"bytes", step.bytes},
          {"flops", step.flops},
          {"share_of_bandwidth", step.ByteShare(chip)},
          {"share_of_matrix_units", step.MatrixShare(chip)},
          {"bound", step.bound},
          {"kernels", std::move(kernels)}};
}

std::string PredictionNote(const Chip& chip) {
  return absl::StrFormat("PREDICTION, not measured on a %s (%s)", std::string(chip.title),
                         std::string(chip.source));
}

Json ReportAsJson(const ModelReport& report) {
  Json kernels = Json::array(), steps = Json::array();
  for (const KernelFacts& facts : report.kernels) kernels.push_back(KernelAsJson(facts));
  for (const StepPrediction& step : report.steps) steps.push_back(StepAsJson(step, report.chip));
  const Chip& chip = report.chip;
  Json json = {{"chip", std::string(chip.name)},    {"title", std::string(chip.title)},
               {"own_compiler", chip.own_compiler}, {"device", report.device},
               {"driver", report.driver},           {"model", report.model},
               {"max_rows", report.max_rows},       {"tuning", report.tuning},
               {"kernels", std::move(kernels)}};
  if (!report.steps.empty()) {
    json["note"] = PredictionNote(chip);
    json["predictions"] = std::move(steps);
    json["figures"] = {{"bandwidth", chip.bandwidth},
                       {"bandwidth_share", chip.bandwidth_share},
                       {"matrix_flops", chip.MatrixFlops()},
                       {"source", std::string(chip.source)}};
  }
  return json;
}

std::string KernelTable(const ModelReport& report) {
  TextTable table(
      {false, true, true, true, true, true, true, true, true, true, true, true, true, true, true});
  table.Add({"kernel", "VGPRs", "waves", "spills", "scratch", "LDS", "instr", "dot", "wmma",
             "loads", "LDS ops", "waits", "branches", "latency", "loop clk/kMAC"});
  for (const KernelFacts& facts : report.kernels) {
    if (!facts.compiled) {
      table.Add({facts.name, "not compiled"});
      continue;
    }
    const InstructionMix& mix = facts.assembly.all;
    const double macs = facts.assembly.loop.macs;
    table.Add({facts.name, absl::StrFormat("%d", facts.vgprs),
               absl::StrFormat("%d", facts.waves_per_simd),
               absl::StrFormat("%d", facts.spilled_vgprs + facts.spilled_sgprs),
               absl::StrFormat("%d", facts.scratch_bytes), absl::StrFormat("%d", facts.lds_bytes),
               absl::StrFormat("%d", mix.total), absl::StrFormat("%d", mix.dot),
               absl::StrFormat("%d", mix.matrix), absl::StrFormat("%d", mix.vector_loads),
               absl::StrFormat("%d", mix.shared), absl::StrFormat("%d", mix.waits),
               absl::StrFormat("%d", mix.branches), absl::StrFormat("%d", facts.latency),
               macs > 0 ? absl::StrFormat("%.1f", facts.loop.most() / macs * 1000) : ""});
  }
  return table.Print();
}

std::string StepTables(const ModelReport& report) {
  const Chip& chip = report.chip;
  std::string text = absl::StrFormat("\n%s\n\n", PredictionNote(chip));
  TextTable steps({false, true, true, true, true, true, true, true, false});
  steps.Add({"test", "predicted t/s", "at best t/s", "predicted ms", "between ms", "dispatches",
             "bytes %", "matrix %", "bound"});
  for (const StepPrediction& step : report.steps) {
    steps.Add({step.name, absl::StrFormat("%.1f", step.tokens_per_second()),
               absl::StrFormat("%.1f", step.tokens / step.at_best),
               absl::StrFormat("%.2f", step.seconds * 1e3),
               absl::StrFormat("%.2f", step.between * 1e3), absl::StrFormat("%d", step.dispatches),
               absl::StrFormat("%.0f", 100 * step.ByteShare(chip)),
               absl::StrFormat("%.0f", 100 * step.MatrixShare(chip)), step.bound});
  }
  text += steps.Print();
  for (const StepPrediction& step : report.steps) {
    text += absl::StrFormat("\n%s, PREDICTION by kernel:\n", step.name);
    TextTable kernels({true, true, true, false, false});
    kernels.Add({"predicted ms", "dispatches", "predicted GB/s", "bound", "kernel"});
    for (const KernelTime& kernel : step.kernels) {
      const double bytes = kernel.work.weight_bytes + kernel.work.kv_bytes;
      kernels.Add({absl::StrFormat("%.3f", (kernel.seconds + kernel.before) * 1e3),
                   absl::StrFormat("%d", kernel.dispatches),
                   absl::StrFormat("%.1f", bytes / (kernel.seconds + kernel.before) * 1e-9),
                   kernel.bound, kernel.name});
    }
    text += kernels.Print("  ");
  }
  return text;
}

}  // namespace

std::string ReportAsText(const ModelReport& report) {
  std::string text = absl::StrFormat("%s%s on %s: %s, %s, steps of up to %d rows, tuning %s\n",
                                     report.steps.empty() ? "" : "PREDICTION: ", report.model,
                                     std::string(report.chip.title), report.device, report.driver,
                                     report.max_rows, report.tuning);
  if (!report.chip.own_compiler) {
    text += absl::StrFormat("no compiler for this chip: the instructions are those of %s\n",
                            std::string(report.chip.family));
  }
  if (!report.steps.empty()) return text + StepTables(report);
  return text + KernelTable(report);
}

std::string ReportsAsJson(const std::vector<ModelReport>& reports) {
  if (reports.size() == 1) return ReportAsJson(reports[0]).dump(2) + "\n";
  Json list = Json::array();
  for (const ModelReport& report : reports) list.push_back(ReportAsJson(report));
  return Json{{"reports", std::move(list)}}.dump(2) + "\n";
}

}  // namespace tandem::report

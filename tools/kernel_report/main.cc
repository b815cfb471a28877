// kernel_report: the worker's pipelines as AMD's compiler makes them, on a machine without the
// chip.  docs/radeon.md says how to read it.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/common/base/exit_codes.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"
#include "services/common/flags/parse_flags.h"
#include "services/common/tensor/kv_format.h"
#include "tools/kernel_report/baseline.h"
#include "tools/kernel_report/radv.h"
#include "tools/kernel_report/report.h"
#include "tools/kernel_report/submissions.h"
#include "tools/kernel_report/validation.h"

namespace tandem::report {
namespace {

struct Flags {
  std::vector<std::string> chips = {"phoenix"};
  std::vector<std::string> models;
  bool main_set = false, all = false, check = false, predict = false, json = false;
  bool find_radv = false, submissions = false;
  uint32_t longest_submission_ms = 100;
  std::string radv, kv_type = "f16", baseline, write_baseline, assembly, validate;
  ReportRequest request{
      .model = {.max_rows = 2048}, .prompts = {512}, .batches = {1}, .depths = {0}};
};

absl::StatusOr<std::string> ReadFile(const char* flag, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrFormat("%s %s: cannot be read", flag, path));
  return std::string(std::istreambuf_iterator<char>(file), {});
}

absl::Status WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (file) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrFormat("--write-baseline %s: cannot be written", path));
}

absl::StatusOr<std::vector<ModelReport>> MakeReports(const Flags& flags, const std::string& radv) {
  std::vector<std::string> models = flags.models;
  if (flags.main_set) models = MainModels();
  if (flags.all) models = AllModels();
  if (models.empty()) {
    return absl::InvalidArgumentError("--model SPEC, --main-set or --all: which model's kernels?");
  }
  std::vector<ModelReport> reports;
  ReportRequest request = flags.request;
  TANDEM_ASSIGN_OR_RETURN(request.model.kv_dtype, ParseKvDType(flags.kv_type));
  if (!flags.predict) request.prompts = request.batches = request.depths = {};
  for (const std::string& chip : flags.chips) {
    TANDEM_ASSIGN_OR_RETURN(request.chip, FindChip(chip));
    for (const std::string& model : models) {
      request.model.model = model;
      TANDEM_ASSIGN_OR_RETURN(reports.emplace_back(), MakeReport(request, radv));
      if (!flags.assembly.empty()) std::fputs(AssemblyOf(flags.assembly).c_str(), stdout);
    }
  }
  return reports;
}

// Prints the faults; returns whether there are any.
bool PrintFaults(const std::vector<ModelReport>& reports) {
  bool any = false;
  for (const ModelReport& report : reports) {
    for (const KernelFacts& facts : report.kernels) {
      for (const std::string& fault : FaultsOf(facts)) {
        any = true;
        std::fprintf(stderr, "kernel_report: %s, %s: %s %s\n",
                     std::string(report.chip.name).c_str(), report.model.c_str(),
                     facts.name.c_str(), fault.c_str());
      }
    }
  }
  return any;
}

absl::StatusOr<bool> CompareAndPrint(const Flags& flags, const std::vector<ModelReport>& reports) {
  TANDEM_ASSIGN_OR_RETURN(const std::string text, ReadFile("--baseline", flags.baseline));
  TANDEM_ASSIGN_OR_RETURN(const BaselineCheck check,
                          CompareWithBaseline(text, flags.baseline, reports));
  if (!check.note.empty()) {
    std::fprintf(stderr, "kernel_report: %s: %s\n", flags.baseline.c_str(), check.note.c_str());
  }
  for (const std::string& fault : check.faults) {
    std::fprintf(stderr, "kernel_report: %s\n", fault.c_str());
  }
  if (!check.faults.empty()) {
    std::fprintf(stderr,
                 "kernel_report: %zu differences; where they are meant, renew %s with "
                 "--write-baseline\n",
                 check.faults.size(), flags.baseline.c_str());
  }
  return !check.faults.empty();
}

// Fails where the median error is above the file's.
absl::StatusOr<int> RunValidation(const Flags& flags, const std::string& radv) {
  TANDEM_ASSIGN_OR_RETURN(const std::string text, ReadFile("--validate", flags.validate));
  TANDEM_ASSIGN_OR_RETURN(const Measurements measurements, ParseMeasurements(text, flags.validate));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<ValidatedStep> steps,
                          Validate(measurements, flags.request.settings, radv));
  const std::string report = flags.json ? ValidationAsJson(measurements, steps)
                                        : ValidationAsMarkdown(measurements, steps);
  std::fputs(report.c_str(), stdout);
  const double error = Summarise(steps).median;
  if (error <= measurements.median_error) return kExitSuccess;
  std::fprintf(stderr, "kernel_report: %s: the median error is %.3f, allowed is %.3f\n",
               flags.validate.c_str(), error, measurements.median_error);
  return kExitFailure;
}

// Fails where a submission is longer than it may be.
absl::StatusOr<int> RunSubmissions(const Flags& flags, const std::string& radv) {
  if (flags.models.empty()) {
    return absl::InvalidArgumentError("--submissions: name the model with --model SPEC");
  }
  const absl::Duration longest = absl::Milliseconds(flags.longest_submission_ms);
  bool too_long = false;
  ReportRequest request = flags.request;
  TANDEM_ASSIGN_OR_RETURN(request.model.kv_dtype, ParseKvDType(flags.kv_type));
  for (const std::string& chip : flags.chips) {
    TANDEM_ASSIGN_OR_RETURN(request.chip, FindChip(chip));
    for (const std::string& model : flags.models) {
      request.model.model = model;
      TANDEM_ASSIGN_OR_RETURN(const SubmissionReport report,
                              TimeSubmissions(request, longest, radv));
      std::fputs(SubmissionsAsText(report).c_str(), stdout);
      const double most = absl::ToDoubleSeconds(longest);
      too_long = too_long || (most > 0 && report.Longest() > most);
    }
  }
  if (!too_long) return kExitSuccess;
  std::fprintf(stderr, "kernel_report: a submission is longer than %d ms\n",
               flags.longest_submission_ms);
  return kExitFailure;
}

absl::StatusOr<int> Run(const Flags& flags, char** argv) {
  // Before the search for RADV, so that a wrong name is named on every machine.
  for (const std::string& chip : flags.chips) TANDEM_RETURN_IF_ERROR(FindChip(chip).status());
  TANDEM_ASSIGN_OR_RETURN(const std::string radv, PrepareRadv(flags.radv, argv));
  if (flags.find_radv) {
    std::printf("%s\n", radv.c_str());
    return kExitSuccess;
  }
  if (!flags.validate.empty()) return RunValidation(flags, radv);
  if (flags.submissions) return RunSubmissions(flags, radv);
  TANDEM_ASSIGN_OR_RETURN(const std::vector<ModelReport> reports, MakeReports(flags, radv));
  if (flags.json) {
    std::fputs(ReportsAsJson(reports).c_str(), stdout);
  } else if (flags.assembly.empty() && !flags.check) {
    for (const ModelReport& report : reports) std::fputs(ReportAsText(report).c_str(), stdout);
  }
  if (!flags.write_baseline.empty()) {
    TANDEM_RETURN_IF_ERROR(WriteFile(flags.write_baseline, MakeBaseline(reports)));
  }
  bool failed = flags.check && PrintFaults(reports);
  if (!flags.baseline.empty()) {
    TANDEM_ASSIGN_OR_RETURN(const bool worse, CompareAndPrint(flags, reports));
    failed = failed || worse;
  }
  if (flags.check && !failed) {
    size_t kernels = 0;
    for (const ModelReport& report : reports) kernels += report.kernels.size();
    std::printf(
        "kernel_report: %zu pipelines, no spills, no scratch memory, dot products and "
        "matrices where they belong\n",
        kernels);
  }
  return failed ? kExitFailure : kExitSuccess;
}

void AddFlags(CLI::App& app, Flags& flags) {
  app.add_option("--chip", flags.chips, "One or more of " + ChipNames())
      ->delimiter(',')
      ->capture_default_str();
  auto* models =
      app.add_option("--model", flags.models,
                     "GGUF files, folders, or synthetic names, as synthetic:gemma3-27b?type=q4_0");
  auto* main_set =
      app.add_flag("--main-set", flags.main_set, "The models that every build looks at")
          ->excludes(models);
  app.add_flag("--all", flags.all, "Gemma 3's five sizes in five formats: minutes")
      ->excludes(models)
      ->excludes(main_set);
  app.add_option("--max-rows", flags.request.model.max_rows, "Rows in a step")
      ->check(CLI::Range(1, 65535))
      ->capture_default_str();
  app.add_option("--kv-type", flags.kv_type, "Numbers of the KV cache: f16 or q8_0")
      ->capture_default_str();
  app.add_option("--set", flags.request.settings,
                 "NAME=VALUE: a setting of docs/tuning.md in place of the chip's table's");
  app.add_flag(
      "--check", flags.check,
      "Fail where a pipeline spills, uses scratch memory, or lacks the instruction that it "
      "is made for; print no table");
  app.add_option("--baseline", flags.baseline,
                 "File of --write-baseline: fail where an estimate is over 5% worse");
  app.add_option("--write-baseline", flags.write_baseline, "File to write the estimates to");
  app.add_flag("--predict", flags.predict, "Predict how long steps would take on the chip");
  app.add_option("--validate", flags.validate,
                 "File of measured steps: predict each, and fail where the median error is above "
                 "the file's")
      ->excludes(models)
      ->excludes(main_set);
  const CLI::Range counts(0, 1 << 20);
  app.add_option("--prompt", flags.request.prompts, "With --predict: tokens of a prompt")
      ->delimiter(',')
      ->check(counts)
      ->capture_default_str();
  app.add_option("--batch", flags.request.batches, "With --predict: sequences at a time")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--depth", flags.request.depths, "With --predict: positions before a token")
      ->delimiter(',')
      ->check(counts)
      ->capture_default_str();
  app.add_flag(
      "--submissions", flags.submissions,
      "Cut the steps of --prompt, --batch and --depth into submissions as the worker does, "
      "on the chip's predicted clock; fail where one is too long");
  app.add_option("--longest-submission-ms", flags.longest_submission_ms,
                 "With --submissions: the worker's flag; 0: steps are not cut")
      ->check(CLI::Range(0, 60'000))
      ->capture_default_str();
  app.add_option("--assembly", flags.assembly,
                 "Print the disassembly of pipelines with this in their names");
  app.add_flag("--json", flags.json, "Print JSON");
  app.add_flag("--find-radv", flags.find_radv, "Print the driver that would be used, and end");
  app.add_option("--radv", flags.radv,
                 "Folder of scripts/fetch-radv; empty: .deps/radv above the program, then the "
                 "machine's own Mesa");
}

}  // namespace
}  // namespace tandem::report

int main(int argc, char** argv) {
  tandem::report::Flags flags;
  CLI::App app(
      "Compiles a model's kernels for Radeons that this machine does not have, and reports the "
      "result.");
  tandem::report::AddFlags(app, flags);
  if (const auto ended = tandem::ParseFlags(app, argc, argv)) return *ended;
  ::setenv("TANDEM_LOG", "error", 0);
  tandem::InitLogging("kernel_report");
  const auto result = tandem::report::Run(flags, argv);
  if (!result.ok()) {
    std::fprintf(stderr, "kernel_report: %s\n", std::string(result.status().message()).c_str());
  }
  std::fflush(nullptr);
  // The null device crashes when it is destroyed, and so does its library.
  ::_exit(result.ok() ? *result : tandem::ServeExitCode(result.status()));
}

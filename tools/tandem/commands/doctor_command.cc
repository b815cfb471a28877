#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include "tools/tandem/commands/answer_json.h"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/commands/style.h"
#include "tools/tandem/doctor/doctor.h"

namespace tandem {
namespace {

void PrintFindings(const std::vector<Finding>& findings) {
  for (const Finding& finding : findings) {
    const std::string mark =
        finding.verdict == Verdict::kGood   ? Styled(stdout, Style::kGood, "ok  ")
        : finding.verdict == Verdict::kNote ? Styled(stdout, Style::kWarning, "note")
                                            : Styled(stdout, Style::kBad, "BAD ");
    std::printf("%s  %-16s %s\n", mark.c_str(), finding.subject.c_str(), finding.detail.c_str());
    if (!finding.remedy.empty()) std::printf("      %-16s -> %s\n", "", finding.remedy.c_str());
  }
}

void PrintFindingsAsJson(const std::vector<Finding>& findings, bool fit) {
  nlohmann::ordered_json json = {{"fit", fit}, {"findings", nlohmann::ordered_json::array()}};
  for (const Finding& finding : findings) {
    json["findings"].push_back({{"verdict", finding.verdict == Verdict::kGood   ? "ok"
                                            : finding.verdict == Verdict::kNote ? "note"
                                                                                : "bad"},
                                {"subject", finding.subject},
                                {"detail", finding.detail},
                                {"remedy", finding.remedy}});
  }
  std::fputs(PrintJson(json, 2).c_str(), stdout);
}

}  // namespace

std::function<int()> AddDoctorCommand(CLI::App& app) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand(
      "doctor", "Check drivers, device nodes, groups and limits, and say how to fix them");
  command->add_flag("--json", *json, "Print JSON");
  return [json] {
    const std::vector<Finding> findings = Examine(ThisSystem(ExecutableDirectory()));
    const bool fit = std::none_of(findings.begin(), findings.end(), [](const Finding& finding) {
      return finding.verdict == Verdict::kBad;
    });
    *json ? PrintFindingsAsJson(findings, fit) : PrintFindings(findings);
    return fit ? kExitSuccess : kExitFailure;
  };
}

}  // namespace tandem

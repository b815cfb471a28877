#include <cstdio>

#include "tools/tandem/commands/command.h"
#include "tools/tandem/doctor/doctor.h"

namespace tandem {

std::function<int()> AddDoctorCommand(CLI::App& app) {
  app.add_subcommand("doctor",
                     "Check drivers, device nodes, groups and limits, and how to mend them");
  return [] {
    bool bad = false;
    for (const Finding& finding : Examine(ThisSystem(ExecutableDirectory()))) {
      const char* mark = finding.verdict == Verdict::kGood   ? "ok  "
                         : finding.verdict == Verdict::kNote ? "note"
                                                             : "BAD ";
      std::printf("%s  %-16s %s\n", mark, finding.subject.c_str(), finding.detail.c_str());
      if (!finding.remedy.empty()) std::printf("      %-16s -> %s\n", "", finding.remedy.c_str());
      bad |= finding.verdict == Verdict::kBad;
    }
    return bad ? 1 : 0;
  };
}

}  // namespace tandem

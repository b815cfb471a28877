#include "services/npu_worker/operators/stage_commands.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/time/clock.h"
#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"

namespace tandem::npu {

StageCommands::Commands StageCommands::CommandsOf(std::span<const CommandUse> uses) {
  Commands commands;
  for (const CommandUse& use : uses) commands.push_back(use.command);
  return commands;
}

absl::StatusOr<std::vector<StageCommands::Group>> StageCommands::MakeGroups(
    const Commands& commands) {
  std::vector<Group> groups;
  for (size_t i = 0; i < commands.size(); ++i) {
    NpuKernel& kernel = commands[i]->kernel();
    TANDEM_CHECK(std::count(commands.begin(), commands.end(), commands[i]) == 1);
    if (i == 0 || &kernel.context() != &commands[i - 1]->kernel().context()) {
      groups.push_back({.first = i});
    }
    TANDEM_ASSIGN_OR_RETURN(NpuRun run, kernel.MakeRun());
    groups.back().runs.push_back(std::move(run));
  }
  for (Group& group : groups) {
    std::vector<NpuRun*> runs;
    for (NpuRun& run : group.runs) runs.push_back(&run);
    TANDEM_ASSIGN_OR_RETURN(NpuRunList list,
                            commands[group.first]->kernel().context().MakeRunList(runs));
    group.list = std::make_unique<NpuRunList>(std::move(list));
  }
  return groups;
}

absl::Status StageCommands::Prepare(std::span<const CommandUse> uses) {
  Commands commands = CommandsOf(uses);
  if (groups_.contains(commands)) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(auto groups, MakeGroups(commands));
  groups_.emplace(std::move(commands), std::move(groups));
  return absl::OkStatus();
}

absl::StatusOr<int64_t> StageCommands::ExecuteRows(Group& group, std::span<const CommandUse> uses,
                                                   uint32_t first_row, uint32_t num_rows,
                                                   absl::Duration timeout) {
  for (size_t i = 0; i < group.runs.size(); ++i) {
    const auto& [command, weights] = uses[group.first + i];
    TANDEM_ASSIGN_OR_RETURN(const auto operands, command->Load(weights, first_row, num_rows));
    TANDEM_RETURN_IF_ERROR(group.runs[i].SetArguments(*operands.code, operands.data));
  }
  std::vector<int64_t> run_ns(group.runs.size());
  TANDEM_RETURN_IF_ERROR(group.list->Execute(timeout, run_ns));
  return std::reduce(run_ns.begin(), run_ns.end());
}

absl::StatusOr<int64_t> StageCommands::Execute(std::span<const CommandUse> uses, uint32_t num_rows,
                                               absl::Duration timeout) {
  const absl::Time start = absl::Now();
  int64_t ns = 0;
  for (Group& group : groups_.at(CommandsOf(uses))) {
    for (uint32_t row = 0; row < num_rows; row += kCommandRows) {
      TANDEM_ASSIGN_OR_RETURN(const int64_t rows_ns,
                              ExecuteRows(group, uses, row, std::min(kCommandRows, num_rows - row),
                                          timeout - (absl::Now() - start)));
      ns += rows_ns;
    }
  }
  return ns;
}

}  // namespace tandem::npu

// Executes commands of a stage one after another, over the same rows.
//
// The host has nothing to do between them: each operator's output is the next one's input, in a buffer
// of the device.  Neighbours in one hardware context reach the device as a list, and so in one
// submission; where the context changes, the host waits for what comes before.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/npu_worker/operators/operator_command.h"
#include "services/npu_worker/xrt/npu_run.h"

namespace tandem::npu {

// A command with a layer's weights.
struct CommandUse {
  OperatorCommand* command = nullptr;  // Borrowed.
  const NpuBuffer* weights = nullptr;  // Borrowed; nullptr if it takes none.
};

// Single-thread.
class StageCommands {
 public:
  // Makes the runs and lists that these commands need.  Uses whose commands are the same share them.  The
  // commands must outlive this.  Errors as NpuContext::MakeRunList.
  // REQUIRES that no command comes twice: it has the code of one of them at a time.
  absl::Status Prepare(std::span<const CommandUse> uses);

  // Executes the commands over the first `num_rows` rows, and returns nanoseconds on the device, as the host
  // sees them.  Inputs must be the device's already, and outputs stay there.  Errors as
  // NpuRunList::Execute and OperatorCommand::Load: commands behind the one that failed have not run.
  // REQUIRES Prepare, 1 <= num_rows <= max_rows of each command.
  absl::StatusOr<int64_t> Execute(std::span<const CommandUse> uses, uint32_t num_rows,
                                  absl::Duration timeout);

 private:
  // Neighbours in one context.
  struct Group {
    size_t first = 0;  // of the uses
    std::vector<NpuRun> runs;
    std::unique_ptr<NpuRunList> list;  // of the runs: destroyed before them
  };
  using Commands = std::vector<OperatorCommand*>;

  static Commands CommandsOf(std::span<const CommandUse> uses);
  static absl::StatusOr<std::vector<Group>> MakeGroups(const Commands& commands);
  // Rows from `first_row` on, kCommandRows at most.
  static absl::StatusOr<int64_t> ExecuteRows(Group& group, std::span<const CommandUse> uses,
                                             uint32_t first_row, uint32_t num_rows,
                                             absl::Duration timeout);

  std::map<Commands, std::vector<Group>> groups_;
};

}  // namespace tandem::npu

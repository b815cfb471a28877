#include "services/npu_worker/operators/command_code.h"

#include <cstring>

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"

namespace tandem::npu {

absl::StatusOr<CommandCode> CommandCode::Create(NpuKernel& kernel, const Transaction& longest) {
  CommandCode code;
  TANDEM_ASSIGN_OR_RETURN(code.instructions_, kernel.MakeInstructions(longest.words()));
  return code;
}

absl::StatusOr<size_t> CommandCode::Load(
    const Rows& rows, const std::function<absl::StatusOr<Transaction>()>& build) {
  if (loaded_ == rows) return num_words_;
  loaded_.reset();
  auto known = known_.find(rows);
  if (known == known_.end()) {
    TANDEM_ASSIGN_OR_RETURN(Transaction built, build());
    known = known_.emplace(rows, std::move(built)).first;
  }
  const std::vector<uint32_t>& words = known->second.words();
  const size_t bytes = words.size() * sizeof(uint32_t);
  TANDEM_CHECK(bytes <= instructions_.size());
  std::memcpy(instructions_.data(), words.data(), bytes);
  TANDEM_RETURN_IF_ERROR(instructions_.SyncToDevice(0, bytes));
  loaded_ = rows;
  num_words_ = words.size();
  return num_words_;
}

absl::Status CheckMemoryGroups(const NpuKernel& kernel, const NpuOperator& op) {
  for (const OperatorArgument& argument : op.arguments) {
    TANDEM_ASSIGN_OR_RETURN(const uint32_t group,
                            kernel.MemoryGroup(static_cast<int>(argument.buffer())));
    if (group == argument.group) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "operator '%s': argument %d (%s) is in memory group %d of the xclbin, the package says %d",
        op.name, argument.index, argument.name, group, argument.group));
  }
  return absl::OkStatus();
}

}  // namespace tandem::npu

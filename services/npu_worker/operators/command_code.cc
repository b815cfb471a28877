#include "services/npu_worker/operators/command_code.h"

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"

namespace tandem::npu {

absl::StatusOr<CommandCode> CommandCode::Create(NpuKernel& kernel, CodeForm form,
                                                const Transaction& longest) {
  CommandCode code;
  TANDEM_ASSIGN_OR_RETURN(code.code_, kernel.MakeCode(form, longest.words().size()));
  return code;
}

absl::Status CommandCode::Load(const Rows& rows,
                               const std::function<absl::StatusOr<Transaction>()>& build) {
  if (loaded_ == rows) return absl::OkStatus();
  loaded_.reset();
  auto known = known_.find(rows);
  if (known == known_.end()) {
    TANDEM_ASSIGN_OR_RETURN(Transaction built, build());
    known = known_.emplace(rows, std::move(built)).first;
  }
  TANDEM_RETURN_IF_ERROR(code_.Load(known->second.words()));
  loaded_ = rows;
  return absl::OkStatus();
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

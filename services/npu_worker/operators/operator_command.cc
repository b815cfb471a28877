#include "services/npu_worker/operators/operator_command.h"

#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"

namespace tandem::npu {

absl::Status OperatorCommand::Prepare(uint32_t longest) {
  TANDEM_RETURN_IF_ERROR(CheckMemoryGroups(kernel_, op_));
  const uint32_t last_row = (max_rows_ - 1) / kCommandRows * kCommandRows;
  TANDEM_RETURN_IF_ERROR(Build(last_row, max_rows_ - last_row).status());
  TANDEM_ASSIGN_OR_RETURN(const Transaction code, Build(0, longest));
  TANDEM_ASSIGN_OR_RETURN(code_, CommandCode::Create(kernel_, op_.code, code));
  return absl::OkStatus();
}

absl::StatusOr<OperatorCommand::Operands> OperatorCommand::Load(const NpuBuffer* weights,
                                                                uint32_t first_row,
                                                                uint32_t num_rows) {
  TANDEM_CHECK(num_rows > 0 && num_rows <= kCommandRows && first_row + num_rows <= max_rows_);
  const uint32_t rows = PaddedRows(num_rows);
  TANDEM_RETURN_IF_ERROR(code_->Load({first_row, rows}, [&] { return Build(first_row, rows); }));
  return Operands{&code_->code(), Arguments(weights)};
}

}  // namespace tandem::npu

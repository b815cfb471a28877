#include "services/npu_worker/operators/list_self_test.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"

namespace tandem::npu {

absl::StatusOr<std::unique_ptr<ListSelfTest>> ListSelfTest::Create(OpenedOperator rows,
                                                                   OpenedOperator gemm) {
  TANDEM_CHECK(&rows.kernel->context() == &gemm.kernel->context());
  auto test = std::make_unique<ListSelfTest>();
  test->names_ = absl::StrFormat("'%s' and '%s'", rows.op->name, gemm.op->name);
  TANDEM_ASSIGN_OR_RETURN(test->rows_, RowSelfTest::Create(std::move(rows.kernel), *rows.op));
  TANDEM_ASSIGN_OR_RETURN(
      test->gemm_, GemmSelfTest::Create(std::move(gemm.kernel), *gemm.op, test->rows_->num_rows()));
  const CommandUse uses[] = {test->rows_->use(), test->gemm_->use()};
  TANDEM_RETURN_IF_ERROR(test->commands_.Prepare(uses));
  return test;
}

absl::Status ListSelfTest::Run(absl::Duration timeout) {
  TANDEM_RETURN_IF_ERROR(rows_->Begin());
  TANDEM_RETURN_IF_ERROR(gemm_->Begin());
  const CommandUse uses[] = {rows_->use(), gemm_->use()};
  const auto ns = commands_.Execute(uses, rows_->num_rows(), timeout);
  if (!ns.ok()) {
    const bool has_failed = absl::IsInternal(ns.status());
    return absl::Status(has_failed ? absl::StatusCode::kDataLoss : ns.status().code(),
                        absl::StrFormat("NPU self-test of a list of %s: %s", names_,
                                        std::string(ns.status().message())));
  }
  TANDEM_RETURN_IF_ERROR(rows_->End());
  return gemm_->End();
}

}  // namespace tandem::npu

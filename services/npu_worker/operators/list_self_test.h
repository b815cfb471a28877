// The self-test of a list whose commands are of different kernels (operator_test.h), as stages give them to a
// hardware context: row functions, then a GEMM, each with its own known answer.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/npu_worker/operators/gemm_self_test.h"
#include "services/npu_worker/operators/opened_operator.h"
#include "services/npu_worker/operators/operator_test.h"
#include "services/npu_worker/operators/row_self_test.h"
#include "services/npu_worker/operators/stage_commands.h"

namespace tandem::npu {

class ListSelfTest final : public OperatorTest {
 public:
  // REQUIRES kernels of one context.
  static absl::StatusOr<std::unique_ptr<ListSelfTest>> Create(OpenedOperator rows,
                                                              OpenedOperator gemm);

  absl::Status Run(absl::Duration timeout) override;

 private:
  std::string names_;
  std::unique_ptr<RowSelfTest> rows_;
  std::unique_ptr<GemmSelfTest> gemm_;
  StageCommands commands_;  // destroyed before their memory
};

}  // namespace tandem::npu

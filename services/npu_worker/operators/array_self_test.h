// The self-test of an array's attention (operator_test.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/npu_worker/backend/known_attention.h"
#include "services/npu_worker/operators/attention_commands.h"
#include "services/npu_worker/operators/kv_slabs.h"
#include "services/npu_worker/operators/operator_test.h"
#include "services/npu_worker/operators/step_runs.h"
#include "services/npu_worker/xrt/npu_kernel.h"

namespace tandem::npu {

// Asks for backend/known_attention.h's, with a kv head for each column of the array: each column computes both
// sequences for one of them.  Single-thread.
class ArraySelfTest final : public OperatorTest {
 public:
  // `kernel`: the operator's; shared with plans.  `op`: borrowed; must outlive this.
  static absl::StatusOr<std::unique_ptr<ArraySelfTest>> Create(std::shared_ptr<NpuKernel> kernel,
                                                               const NpuOperator& op);

  absl::Status Run(absl::Duration timeout) override;

 private:
  ArraySelfTest(std::shared_ptr<NpuKernel> kernel, const NpuOperator& op)
      : kernel_(std::move(kernel)), op_(op) {}
  uint32_t num_kv_heads() const { return op_.array.num_columns; }
  uint32_t num_heads() const { return num_kv_heads() * known_attention::kGroupHeads; }
  absl::Status Fill();
  absl::Status Check();
  absl::Status Failure(const std::string& what) const;

  std::shared_ptr<NpuKernel> kernel_;
  const NpuOperator& op_;     // Borrowed.
  std::vector<KvSlab> slab_;  // one
  std::unique_ptr<AttentionCommands> commands_;
  StepRuns history_;  // rows of the second sequence's earlier positions
  StepRuns runs_;
  AttentionCode code_;
  std::vector<float> expected_;
  float largest_error_ = 0;
};

}  // namespace tandem::npu

// Row functions as a command of an array: one or several, each over all rows, by control code that is
// made before or in the first step with as many rows.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/npu_worker/control/rows.h"
#include "services/npu_worker/operators/command_code.h"
#include "services/npu_worker/package/package.h"
#include "services/npu_worker/xrt/npu_device.h"
#include "services/npu_worker/xrt/npu_run.h"

namespace tandem::npu {

// Single-thread.
class RowCommands {
 public:
  struct Options {
    uint32_t max_rows = 0;
    // In turn.  Their offsets are of row 0; array, parameters, rows and argument numbers are set here.
    std::vector<RowJob> jobs;
  };
  // What the operands are offsets into: buffers of this or another context of the device, which hold
  // `max_rows` filled up to a multiple of 4.  Borrowed; must outlive this.
  struct Buffers {
    const NpuBuffer* first = nullptr;
    const NpuBuffer* second = nullptr;  // nullptr: no job has one
    const NpuBuffer* output = nullptr;
  };

  // `device`: opened with the operator's xclbin.  `device` and `op`: borrowed; must outlive this.
  // INVALID_ARGUMENT: as BuildRows and CheckMemoryGroups; RESOURCE_EXHAUSTED: the instruction heap.
  static absl::StatusOr<std::unique_ptr<RowCommands>> Create(NpuDevice& device,
                                                             const NpuOperator& op, Options options,
                                                             const Buffers& buffers);

  // A zeroed buffer for the operator's argument of that name.
  static absl::StatusOr<NpuBuffer> MakeBuffer(NpuDevice& device, const NpuOperator& op,
                                              std::string_view argument, uint64_t bytes);

  // Computes the first `num_rows` rows, and returns nanoseconds on the device, as the host sees them.
  // Inputs must be the device's already, and the output stays there.  `weights`: nullptr if no job
  // has any.  Errors as NpuRun::Execute.  REQUIRES 1 <= num_rows <= max_rows.
  absl::StatusOr<int64_t> Execute(const NpuBuffer* weights, uint32_t num_rows,
                                  absl::Duration timeout);

 private:
  RowCommands(const NpuOperator& op, Options options, const Buffers& buffers)
      : op_(op), options_(std::move(options)), buffers_(buffers) {}
  // In the order of the kernel's arguments.
  std::array<const NpuBuffer*, 4> Arguments(const NpuBuffer* weights) const;
  absl::StatusOr<Transaction> Build(uint32_t first_row, uint32_t num_rows) const;

  const NpuOperator& op_;  // Borrowed.
  const Options options_;
  const Buffers buffers_;
  std::optional<CommandCode> code_;  // set by Create, as the following
  std::optional<NpuRun> run_;
};

}  // namespace tandem::npu

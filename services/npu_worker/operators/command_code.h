// Control code of one command that is executed for different rows: what was made is kept, and is loaded when it is
// wanted.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/npu_worker/control/transaction.h"
#include "services/npu_worker/package/package.h"
#include "services/npu_worker/xrt/npu_kernel.h"

namespace tandem::npu {

// Single-thread.
class CommandCode {
 public:
  // Which rows the code is for: the first, and how many, both in units of the caller's.
  using Rows = std::pair<uint32_t, uint32_t>;

  // `longest`: code that no other is longer than.  Errors as NpuKernel::MakeCode.
  static absl::StatusOr<CommandCode> Create(NpuKernel& kernel, CodeForm form,
                                            const Transaction& longest);

  const NpuCode& code() const { return code_; }
  // Loads the code of these rows, made by `build` if it is not known.  Errors are `build`'s, and NpuCode::Load's.
  absl::Status Load(const Rows& rows, const std::function<absl::StatusOr<Transaction>()>& build);

 private:
  NpuCode code_;
  std::map<Rows, Transaction> known_;
  std::optional<Rows> loaded_;
};

// INVALID_ARGUMENT: the xclbin connects an argument of the operator's kernel to another memory group than
// the package says.
absl::Status CheckMemoryGroups(const NpuKernel& kernel, const NpuOperator& op);

}  // namespace tandem::npu

// Control code of one command that is executed for different rows: what was made is kept, and is copied
// into one instruction buffer when it is wanted.
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

  // `longest`: code that no other is longer than.  RESOURCE_EXHAUSTED: the instruction heap.
  static absl::StatusOr<CommandCode> Create(NpuKernel& kernel, const Transaction& longest);

  const NpuBuffer& instructions() const { return instructions_; }
  // Puts the code of these rows into the instruction buffer, made by `build` if it is not known, and
  // returns its words.  Errors are `build`'s, and those of NpuBuffer's Sync.
  absl::StatusOr<size_t> Load(const Rows& rows,
                              const std::function<absl::StatusOr<Transaction>()>& build);

 private:
  NpuBuffer instructions_;
  std::map<Rows, Transaction> known_;
  std::optional<Rows> loaded_;
  size_t num_words_ = 0;  // of the code that is loaded
};

// INVALID_ARGUMENT: the xclbin connects an argument of the operator's kernel to another memory group than
// the package says.
absl::Status CheckMemoryGroups(const NpuKernel& kernel, const NpuOperator& op);

}  // namespace tandem::npu

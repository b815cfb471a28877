// Control code of a command, as the device gets it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "services/npu_worker/control/code_form.h"

namespace tandem::npu {

// Move-only.  Single-thread.
class NpuCode {
 public:
  NpuCode();  // no code: NpuKernel::MakeCode makes one
  NpuCode(NpuCode&&) noexcept;
  NpuCode& operator=(NpuCode&&) noexcept;
  ~NpuCode();

  // Puts a transaction (control/transaction.h) in place of the one before.  A command uses it from
  // NpuRun::SetArguments on.  INVALID_ARGUMENT: libaiebu does not take it.
  // REQUIRES that no command which uses the code is under way, and as many words as it was made for, or fewer.
  absl::Status Load(std::span<const uint32_t> words);

 private:
  friend class NpuKernel;
  friend class NpuRun;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::npu

// Commands of the NPU, made once and started any number of times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/npu_worker/xrt/npu_buffer.h"
#include "services/npu_worker/xrt/npu_code.h"

namespace tandem::npu {

// One kernel command with its arguments set.  Move-only.
class NpuRun {
 public:
  NpuRun(NpuRun&&) noexcept;
  NpuRun& operator=(NpuRun&&) noexcept;
  ~NpuRun();

  // Starts the command and waits.  UNAVAILABLE: it was not started, did not finish in time, or the device is
  // gone; it may still be running, and cannot be started again, so the device must be opened again.
  // INTERNAL: it ended with an error, and what it left in the array is not known.
  absl::Status Execute(absl::Duration timeout);

  // Gives the command other arguments: as NpuKernel::MakeRun.  Of an ELF that it did not execute before, XRT makes
  // another command.  REQUIRES that it is not under way.
  absl::Status SetArguments(const NpuCode& code, std::span<const NpuBuffer* const> data);

 private:
  friend class NpuContext;
  friend class NpuKernel;
  friend class NpuRunList;
  NpuRun();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Several commands, each after the one before it.  On XRT with run lists they reach the device in
// one submission; before, one by one.  Move-only.
class NpuRunList {
 public:
  NpuRunList(NpuRunList&&) noexcept;
  NpuRunList& operator=(NpuRunList&&) noexcept;
  ~NpuRunList();

  // As NpuRun::Execute, `timeout` for all of them together.  Stops at the first failure.
  // `run_ns`, one for each run: set to the time from start to completion as the host sees it.  XRT
  // tells one time for a submitted list: it is the first run's, and the others' are 0.
  absl::Status Execute(absl::Duration timeout, std::span<int64_t> run_ns);
  size_t size() const;

 private:
  friend class NpuContext;
  NpuRunList();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::npu

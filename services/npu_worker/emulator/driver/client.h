// A process at the emulated driver: what a descriptor of the device node stands for.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "services/common/base/mutex.h"
#include "services/npu_worker/emulator/address_space.h"
#include "services/npu_worker/emulator/driver/client_buffers.h"
#include "services/npu_worker/emulator/driver/command_queue.h"
#include "services/npu_worker/emulator/driver/device.h"

namespace tandem::npu::emulator {

// Thread-safe.
class DriverClient {
 public:
  explicit DriverClient(DriverDevice& device);  // Borrowed; must outlive this
  ~DriverClient();

  ClientBuffers& buffers() { return buffers_; }
  DriverDevice& device() { return device_; }

  // A context over `num_tiles` cores.  ENOENT: the process has no heap; EINVAL, ENODEV:
  // Columns::Acquire; ENOSPC: no room in the heap for the context's command buffers; ETIME, ENODEV:
  // the firmware does not answer.
  Errno CreateContext(uint32_t num_tiles, uint32_t* handle);
  Errno DestroyContext(uint32_t handle);
  // Names the configurations of the array that the context's kernels are: device buffers, in the order of
  // the kernels' CUs.  EINVAL: none, more than kMaxConfigurations, another kind of buffer, or the
  // context has been configured.
  Errno ConfigureContext(uint32_t handle, std::span<const uint32_t> configurations);

  // EINVAL: no such context or command, a malformed chain; ENOENT: no such argument.  Waits while
  // kCommandsInFlight commands of the context are under way.
  Errno Submit(uint32_t context, uint32_t command, std::span<const uint32_t> arguments,
               uint64_t* sequence);
  // EINVAL: no such context; ETIME: not ended by `deadline`.
  Errno Wait(uint32_t context, uint64_t sequence, absl::Time deadline);

  struct ContextInfo {
    uint32_t handle;
    uint32_t first_column;
    uint32_t num_columns;
    CommandQueue::Counts commands;
  };
  std::vector<ContextInfo> contexts() const;

 private:
  struct Context {
    uint32_t first_column = 0;
    uint32_t num_columns = 0;
    std::vector<uint32_t> command_buffers;  // of the driver, in the heap
    std::vector<std::shared_ptr<ClientBuffer>> configurations;
    std::unique_ptr<CommandQueue> queue;
  };
  std::shared_ptr<Context> Find(uint32_t handle) const ABSL_LOCKS_EXCLUDED(mutex_);
  Errno MakeSubmission(uint32_t command, Submission* submission) const;
  void Release(Context& context);

  DriverDevice& device_;
  AddressSpace space_;
  ClientBuffers buffers_;
  mutable Mutex mutex_;
  std::map<uint32_t, std::shared_ptr<Context>> contexts_ ABSL_GUARDED_BY(mutex_);
  uint32_t next_context_ ABSL_GUARDED_BY(mutex_) = 1;
};

}  // namespace tandem::npu::emulator

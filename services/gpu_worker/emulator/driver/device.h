// The emulated Radeon: its memory, contexts, rings and clock, and what happens when it is lost.
//
//   libdrm's functions, ioctl ---> Device ---submissions---> Ring (a thread each)
//   (entry points)                   |                         | CommandProcessor
//                                    |                         v
//                          buffers, addresses, syncobjs   Run (the instruction set)
//
// A page fault or a hang loses the device as the kernel's reset does: the job's fences are signalled,
// and contexts that existed then are refused from there on: ETIME for the guilty one, ECANCELED for
// others.  New contexts work.  A packet that is not emulated ends the process with its name.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "services/gpu_worker/emulator/driver/address_space.h"
#include "services/gpu_worker/emulator/driver/backing_memory.h"
#include "services/gpu_worker/emulator/driver/buffer_table.h"
#include "services/gpu_worker/emulator/driver/command_processor.h"
#include "services/gpu_worker/emulator/driver/device_clock.h"
#include "services/gpu_worker/emulator/driver/range_allocator.h"
#include "services/gpu_worker/emulator/driver/ring.h"
#include "services/gpu_worker/emulator/driver/settings.h"
#include "services/gpu_worker/emulator/driver/sync.h"

namespace tandem::rdna {

// As the kernel numbers them.
enum class RingKind : uint32_t { kGraphics = 0, kCompute = 1 };

struct Submission {
  uint32_t context = 0;
  RingKind kind = RingKind::kCompute;
  uint32_t ring = 0;
  std::vector<IndirectBuffer> buffers;
  std::vector<FencePtr> waits;
  struct SignalTo {
    uint32_t handle;
    uint64_t point;  // 0: binary
  };
  std::vector<SignalTo> signals;
  uint64_t* user_fence = nullptr;
};

struct ContextState {
  bool reset = false, guilty = false;
};

struct DeviceTotals {
  uint64_t submissions = 0, dispatches = 0;
  Counters counters;
};

// Thread-safe.
class Device {
 public:
  // Executes one dispatch, and adds to the counters.
  using Execute = std::function<std::optional<Fault>(const Dispatch&, Memory&, Counters&)>;

  Device(Settings settings, Execute execute);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const Settings& settings() const { return settings_; }
  const Chip& chip() const { return settings_.chip; }
  BackingMemory& backing() { return backing_; }
  AddressSpace& space() { return space_; }
  BufferTable& buffers() { return buffers_; }
  SyncTable& sync() { return sync_; }
  DeviceClock& clock() { return clock_; }

  // Addresses for a buffer; a gap follows each, so that a stray one finds nothing.  Empty: none left.
  std::optional<uint64_t> AllocateAddresses(uint64_t bytes, uint64_t alignment, bool low_32_bits,
                                            bool high);
  bool AllocateAddressesAt(uint64_t address, uint64_t bytes);
  void FreeAddresses(uint64_t address, uint64_t bytes);

  uint32_t CreateContext();
  // Waits for what it submitted.  ENOENT: unknown.
  int FreeContext(uint32_t context);
  // Empty: unknown.
  std::optional<ContextState> context_state(uint32_t context) const;
  // Returns 0 and the sequence, or a positive errno.
  int Submit(Submission submission, uint64_t* sequence);
  // Sets `busy`.  Returns 0 or a positive errno.
  int WaitFor(uint32_t context, RingKind kind, uint32_t ring, uint64_t sequence, Deadline deadline,
              bool* busy);

  // Removes addresses from the GPU's memory.  As the kernel does it, after what was submitted before.
  void Unmap(uint64_t address, uint64_t bytes);

  // Of the last page fault; 0: there was none.
  uint64_t fault_address() const;
  DeviceTotals totals() const;

 private:
  struct Queue {  // ring and what executes its packets
    std::unique_ptr<CommandProcessor> processor;
    std::unique_ptr<Ring> ring;
    ~Queue();
  };
  using QueueKey = std::tuple<uint32_t, RingKind, uint32_t>;

  std::shared_ptr<Queue> FindQueue(const QueueKey& key, bool create);
  void RunJob(uint32_t context, CommandProcessor& processor, const Job& job);
  std::optional<Failure> RunDispatch(const Dispatch& dispatch);
  void Lose(uint32_t context, const Failure& failure, uint64_t submission);

  const Settings settings_;
  const Execute execute_;
  BackingMemory backing_;
  AddressSpace space_;
  BufferTable buffers_;
  SyncTable sync_;
  DeviceClock clock_;

  mutable std::mutex mutex_;  // of what follows
  RangeAllocator low_addresses_, high_32_addresses_, high_addresses_;
  std::map<uint32_t, ContextState> contexts_;
  uint32_t last_context_ = 0;
  // Shared by the table and by callers that wait while their context is freed.
  std::map<QueueKey, std::shared_ptr<Queue>> queues_;
  uint64_t fault_address_ = 0;
  DeviceTotals totals_;
};

}  // namespace tandem::rdna

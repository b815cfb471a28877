#include "services/gpu_worker/emulator/driver/device.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace tandem::rdna {
namespace {

constexpr uint64_t kGapBytes = 64 << 10;
// As the kernel's driver has them: an upper half whose first 4 GiB are for 32-bit pointers.
constexpr uint64_t kLowBegin = 1 << 21, kLowEnd = uint64_t{1} << 47;
constexpr uint64_t kHighBegin = 0xffff800000000000, kHighEnd = 0xfffffffffff00000;
constexpr uint64_t kHigh32End = kHighBegin + (uint64_t{1} << 32);
// Where buffers with gaps and alignment find room, beyond what may be allocated.
constexpr uint64_t kRoomForAlignment = uint64_t{1} << 32;

uint64_t WithGap(uint64_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes + kGapBytes;
}

void Add(Counters& to, const Counters& from) {
  to.waves += from.waves;
  to.instructions += from.instructions;
  to.scalar += from.scalar;
  to.scalar_loads += from.scalar_loads;
  to.vector += from.vector;
  to.dots += from.dots;
  to.matrices += from.matrices;
  to.lds += from.lds;
  to.loads += from.loads;
  to.stores += from.stores;
  to.atomics += from.atomics;
  to.waits += from.waits;
  to.branches += from.branches;
  to.barriers += from.barriers;
}

}  // namespace

Device::Device(Settings settings, Execute execute)
    : settings_(std::move(settings)),
      execute_(std::move(execute)),
      backing_(settings_.chip.vram_bytes + settings_.chip.gtt_bytes + kRoomForAlignment),
      buffers_(backing_, settings_.chip.vram_bytes, settings_.chip.gtt_bytes),
      low_addresses_(kLowBegin, kLowEnd),
      high_32_addresses_(kHighBegin + (1 << 20), kHigh32End),
      high_addresses_(kHigh32End, kHighEnd) {}

Device::~Device() {
  std::map<QueueKey, std::shared_ptr<Queue>> queues;
  {
    const std::scoped_lock lock(mutex_);
    queues.swap(queues_);
  }
}

Device::Queue::~Queue() {
  if (processor != nullptr) processor->Stop();
  ring.reset();
}

std::optional<uint64_t> Device::AllocateAddresses(uint64_t bytes, uint64_t alignment,
                                                  bool low_32_bits, bool high) {
  if (bytes == 0 || bytes > kLowEnd) return std::nullopt;
  alignment = std::max(alignment, kPageBytes);
  if ((alignment & (alignment - 1)) != 0) return std::nullopt;
  const std::scoped_lock lock(mutex_);
  RangeAllocator& range = low_32_bits ? high_32_addresses_
                          : high      ? high_addresses_
                                      : low_addresses_;
  return range.Allocate(WithGap(bytes), alignment);
}

bool Device::AllocateAddressesAt(uint64_t address, uint64_t bytes) {
  const std::scoped_lock lock(mutex_);
  RangeAllocator& range = address < kHighBegin   ? low_addresses_
                          : address < kHigh32End ? high_32_addresses_
                                                 : high_addresses_;
  return range.AllocateAt(address, WithGap(bytes));
}

void Device::FreeAddresses(uint64_t address, uint64_t bytes) {
  const std::scoped_lock lock(mutex_);
  RangeAllocator& range = address < kHighBegin   ? low_addresses_
                          : address < kHigh32End ? high_32_addresses_
                                                 : high_addresses_;
  range.Free(address, WithGap(bytes));
}

uint32_t Device::CreateContext() {
  const std::scoped_lock lock(mutex_);
  contexts_[++last_context_] = {};
  return last_context_;
}

int Device::FreeContext(uint32_t context) {
  std::vector<std::shared_ptr<Queue>> queues;
  {
    const std::scoped_lock lock(mutex_);
    if (!contexts_.contains(context)) return ENOENT;
    for (auto it = queues_.begin(); it != queues_.end();) {
      if (std::get<0>(it->first) == context) {
        queues.push_back(std::move(it->second));
        it = queues_.erase(it);
      } else {
        ++it;
      }
    }
  }
  queues.clear();  // waits for them
  const std::scoped_lock lock(mutex_);
  contexts_.erase(context);
  return 0;
}

std::optional<ContextState> Device::context_state(uint32_t context) const {
  const std::scoped_lock lock(mutex_);
  const auto it = contexts_.find(context);
  if (it == contexts_.end()) return std::nullopt;
  return it->second;
}

std::shared_ptr<Device::Queue> Device::FindQueue(const QueueKey& key, bool create) {
  const auto it = queues_.find(key);
  if (it != queues_.end()) return it->second;
  if (!create) return nullptr;
  auto queue = std::make_shared<Queue>();
  queue->processor = std::make_unique<CommandProcessor>(
      space_, clock_, [this](const Dispatch& dispatch) { return RunDispatch(dispatch); },
      CommandProcessor::Options{.chip = settings_.chip,
                                .hang_ms = settings_.hang_ms,
                                .trace_packets = settings_.trace > 1});
  queue->ring = std::make_unique<Ring>(
      sync_, [this, context = std::get<0>(key), processor = queue->processor.get()](
                 const Job& job) { RunJob(context, *processor, job); });
  queues_[key] = queue;
  return queue;
}

int Device::Submit(Submission submission, uint64_t* sequence) {
  Job job;
  std::shared_ptr<Queue> queue;
  {
    const std::scoped_lock lock(mutex_);
    const auto context = contexts_.find(submission.context);
    if (context == contexts_.end()) return EINVAL;
    if (context->second.guilty) return ETIME;
    if (context->second.reset) return ECANCELED;
    job.submission = ++totals_.submissions;
    // A file that can be removed was there.
    job.lose_device = job.submission == settings_.lose_at ||
                      (!settings_.lose_on.empty() && ::unlink(settings_.lose_on.c_str()) == 0);
    queue = FindQueue({submission.context, submission.kind, submission.ring}, true);
  }
  job.buffers = std::move(submission.buffers);
  job.waits = std::move(submission.waits);
  job.user_fence = submission.user_fence;
  job.done = std::make_shared<Fence>();
  // Waiters may see the fence before the ring has the job.
  const FencePtr done = job.done;
  *sequence = queue->ring->Submit(std::move(job));
  for (const auto& [handle, point] : submission.signals) {
    if (const int error = sync_.Attach(handle, point, done)) return error;
  }
  return 0;
}

int Device::WaitFor(uint32_t context, RingKind kind, uint32_t ring, uint64_t sequence,
                    Deadline deadline, bool* busy) {
  std::shared_ptr<Queue> queue;
  {
    const std::scoped_lock lock(mutex_);
    if (!contexts_.contains(context)) return EINVAL;
    queue = FindQueue({context, kind, ring}, false);
  }
  *busy = false;
  if (queue == nullptr) return 0;
  const FencePtr fence = queue->ring->Find(sequence);
  if (fence != nullptr) *busy = !sync_.Wait(fence, deadline);
  return 0;
}

void Device::Unmap(uint64_t address, uint64_t bytes) {
  std::map<QueueKey, std::shared_ptr<Queue>> queues;
  {
    const std::scoped_lock lock(mutex_);
    queues = queues_;
  }
  for (const auto& [key, queue] : queues) queue->ring->Settle();
  space_.Unmap(address, bytes);
}

void Device::RunJob(uint32_t context, CommandProcessor& processor, const Job& job) {
  const std::optional<ContextState> state = context_state(context);
  if (!state.has_value() || state->reset) return;
  if (settings_.trace > 0) {
    std::fprintf(stderr, "gpu emulator: submission %" PRIu64 " of %zu buffers\n", job.submission,
                 job.buffers.size());
  }
  if (job.lose_device) {
    Lose(context,
         {.kind = Failure::Kind::kHang,
          .what = "lost, as a test asks (GPU_EMU_LOSE_AT, GPU_EMU_LOSE_ON)"},
         job.submission);
    return;
  }
  for (const IndirectBuffer& buffer : job.buffers) {
    const std::optional<Failure> failure = processor.Run(buffer.address, buffer.words);
    if (!failure.has_value()) continue;
    Lose(context, *failure, job.submission);
    return;
  }
}

std::optional<Failure> Device::RunDispatch(const Dispatch& dispatch) {
  Dispatch with_checks = dispatch;
  with_checks.check_lds_races = settings_.check_lds;
  Counters counters;
  const std::optional<Fault> fault = execute_(with_checks, space_, counters);
  clock_.Advance(DispatchNanoseconds(settings_.chip, dispatch.wave32, counters));
  {
    const std::scoped_lock lock(mutex_);
    ++totals_.dispatches;
    Add(totals_.counters, counters);
  }
  const auto& g = dispatch.groups;
  const auto& s = dispatch.group_size;
  char where[160];
  std::snprintf(where, sizeof where, "dispatch of %ux%ux%u groups of %ux%ux%u, wave%d, code at %s",
                g[0], g[1], g[2], s[0], s[1], s[2], dispatch.wave32 ? 32 : 64,
                Hex(dispatch.code).c_str());
  if (settings_.trace > 0) {
    std::fprintf(stderr, "gpu emulator:  %s: %" PRIu64 " waves, %" PRIu64 " instructions\n", where,
                 counters.waves, counters.instructions);
  }
  if (!fault.has_value()) return std::nullopt;
  return Failure{.kind = fault->unknown ? Failure::Kind::kUnknown : Failure::Kind::kFault,
                 .what = std::string(where) + ", at " + Hex(fault->pc) + ": " + fault->what,
                 .address = fault->address};
}

void Device::Lose(uint32_t context, const Failure& failure, uint64_t submission) {
  std::fprintf(stderr, "gpu emulator: submission %" PRIu64 ": %s%s%s\n", submission,
               failure.what.c_str(), failure.address != 0 ? ", address " : "",
               failure.address != 0 ? Hex(failure.address).c_str() : "");
  if (failure.kind == Failure::Kind::kUnknown) {
    std::fprintf(stderr, "gpu emulator: this is not emulated; the process ends\n");
    std::abort();
  }
  const std::scoped_lock lock(mutex_);
  for (auto& [id, state] : contexts_) {
    state.reset = true;
    state.guilty = state.guilty || id == context;
  }
  if (failure.kind == Failure::Kind::kFault) fault_address_ = failure.address;
}

uint64_t Device::fault_address() const {
  const std::scoped_lock lock(mutex_);
  return fault_address_;
}

DeviceTotals Device::totals() const {
  const std::scoped_lock lock(mutex_);
  return totals_;
}

}  // namespace tandem::rdna

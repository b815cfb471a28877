#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "services/gpu_worker/emulator/isa/dispatch.h"
#include "services/gpu_worker/emulator/isa/program.h"
#include "services/gpu_worker/emulator/isa/workgroup.h"

namespace tandem::rdna {
namespace {

// Workgroups that a thread has begun and not ended.  A kernel whose workgroups wait for each other
// needs several at a time, as the hardware has.
constexpr size_t kMaxResident = 32;

// One dispatch, by all threads.
class Execution {
 public:
  Execution(const Dispatch& dispatch, Memory& memory) : dispatch_(dispatch), memory_(memory) {
    num_groups_ = uint64_t{dispatch.groups[0]} * dispatch.groups[1] * dispatch.groups[2];
  }

  // Executes workgroups until none is left.
  void Work();
  uint64_t num_groups() const { return num_groups_; }
  const std::optional<Fault>& fault() const { return fault_; }
  void AddTo(Counters& counters) const;

 private:
  // Begins the next workgroup; nullptr: there is none.
  std::unique_ptr<Workgroup> TakeNext(std::unique_ptr<Workgroup> used, uint64_t& waves);
  void Report(const Fault& fault);

  const Dispatch& dispatch_;
  Memory& memory_;
  uint64_t num_groups_ = 0;
  std::atomic<uint64_t> next_group_ = 0;
  std::atomic<bool> stopped_ = false;
  std::mutex mutex_;
  std::optional<Fault> fault_;
  KindCounts counts_ = {};
  uint64_t waves_ = 0;
};

std::unique_ptr<Workgroup> Execution::TakeNext(std::unique_ptr<Workgroup> used, uint64_t& waves) {
  const uint64_t number = next_group_.fetch_add(1);
  if (number >= num_groups_) return nullptr;
  if (used == nullptr) used = std::make_unique<Workgroup>(dispatch_, memory_);
  const auto& [x, y, z] = dispatch_.groups;
  const std::array<uint32_t, 3> id = {
      dispatch_.first_group[0] + static_cast<uint32_t>(number % x),
      dispatch_.first_group[1] + static_cast<uint32_t>(number / x % y),
      dispatch_.first_group[2] + static_cast<uint32_t>(number / x / y)};
  used->Begin(id);
  waves += used->num_waves();
  return used;
}

void Execution::Report(const Fault& fault) {
  const std::lock_guard lock(mutex_);
  if (!fault_) fault_ = fault;
  stopped_ = true;
}

void Execution::Work() {
  Program program(dispatch_.gfx, dispatch_.code, memory_);
  std::deque<std::unique_ptr<Workgroup>> resident;
  std::unique_ptr<Workgroup> free;
  KindCounts counts = {};
  uint64_t waves = 0;
  bool more = true;
  while (!stopped_) {
    if (resident.empty()) {
      if (more) resident.push_back(TakeNext(std::move(free), waves));
      if (resident.empty() || resident.front() == nullptr) break;
    }
    Workgroup& group = *resident.front();
    Workgroup::Progress progress = Workgroup::Progress::kPassedBarrier;
    while (progress == Workgroup::Progress::kPassedBarrier && !stopped_) {
      progress = group.Step(program, counts);
    }
    if (progress == Workgroup::Progress::kFaulted) {
      Report(*group.fault());
    } else if (progress == Workgroup::Progress::kEnded) {
      free = std::move(resident.front());
      resident.pop_front();
    } else {
      resident.push_back(std::move(resident.front()));
      resident.pop_front();
      if (more && resident.size() < kMaxResident) {
        auto next = TakeNext(std::move(free), waves);
        more = next != nullptr;
        if (more) resident.push_front(std::move(next));
      }
    }
  }
  const std::lock_guard lock(mutex_);
  for (size_t kind = 0; kind < counts.size(); ++kind) counts_[kind] += counts[kind];
  waves_ += waves;
}

void Execution::AddTo(Counters& counters) const {
  const auto count = [this](Kind kind) { return counts_[static_cast<size_t>(kind)]; };
  counters.waves += waves_;
  for (const uint64_t number : counts_) counters.instructions += number;
  counters.scalar += count(Kind::kScalar);
  counters.scalar_loads += count(Kind::kScalarLoad);
  counters.vector += count(Kind::kVector);
  counters.dots += count(Kind::kDot);
  counters.matrices += count(Kind::kMatrix);
  counters.lds += count(Kind::kLds);
  counters.loads += count(Kind::kLoad);
  counters.stores += count(Kind::kStore);
  counters.atomics += count(Kind::kAtomic);
  counters.waits += count(Kind::kWait);
  counters.branches += count(Kind::kBranch);
  counters.barriers += count(Kind::kBarrier);
}

// What would make the other code divide by zero or run out of registers.
std::optional<Fault> CheckDispatch(const Dispatch& dispatch) {
  constexpr uint64_t kMaxThreads = 1024;
  const uint64_t threads =
      uint64_t{dispatch.group_size[0]} * dispatch.group_size[1] * dispatch.group_size[2];
  if (threads == 0 || threads > kMaxThreads) {
    return Fault{.what = "a workgroup of " + std::to_string(threads) + " threads, 1 to 1024 exist",
                 .pc = dispatch.code};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Fault> Run(const Dispatch& dispatch, Memory& memory, unsigned threads,
                         Counters* counters) {
  if (auto fault = CheckDispatch(dispatch)) return fault;
  Execution execution(dispatch, memory);
  if (execution.num_groups() == 0) return std::nullopt;
  const uint64_t helpers = std::min<uint64_t>(std::max(threads, 1u), execution.num_groups()) - 1;
  std::vector<std::thread> started;
  for (uint64_t index = 0; index < helpers; ++index) {
    started.emplace_back([&execution] { execution.Work(); });
  }
  execution.Work();
  for (std::thread& thread : started) thread.join();
  if (counters != nullptr) execution.AddTo(*counters);
  return execution.fault();
}

}  // namespace tandem::rdna

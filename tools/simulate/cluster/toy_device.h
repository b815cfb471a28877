// A device that computes the network of toy_layers.h over a paged KV cache.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "services/common/worker/worker.h"

namespace tandem::simulate {

// Reports a segment that is run twice.  Single-thread, as a Worker is.
class ToyDevice final : public BlockingWorker {
 public:
  struct Hooks {
    // Before a segment of so many rows and stages: takes its time, or fails.
    std::function<absl::Status(uint32_t num_rows, uint32_t num_stages)> run;
    std::function<absl::Status()> load;
    // Something that the gateway must never do.
    std::function<void(std::string)> violation;
  };
  // `keeps_answers`: as a device with a queue, whose answers wait for an announced call.
  // `wrong_guess_in`: one speculative token in so many is not what the sampler draws; 0: none.
  ToyDevice(WorkerDescription description, Hooks hooks, bool keeps_answers,
            uint32_t wrong_guess_in);
  ~ToyDevice() override;

  const WorkerDescription& description() const override { return description_; }
  absl::StatusOr<LoadReport> Load(
      ModelLoad load, const std::function<void(double, std::string_view)>& progress) override;
  void Unload(uint32_t plan) override;
  // A position's hash lies at the start of its vectors of the first KV head.
  absl::Status CopyKv(uint32_t plan, const KvCopy& copy) override;
  absl::Status CheckHealth() override { return absl::OkStatus(); }
  bool runs_in_wait() const override { return !keeps_answers_; }

 private:
  struct Plan;
  absl::StatusOr<SegmentResult> Run(const SegmentRun& run) override;

  const WorkerDescription description_;
  const Hooks hooks_;
  const bool keeps_answers_;
  const uint32_t wrong_guess_in_;
  uint64_t num_loads_ = 0;
  std::array<std::unique_ptr<Plan>, kMaxPlans> plans_;
};

}  // namespace tandem::simulate

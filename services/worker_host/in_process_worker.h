// For tests and benchmarks: a worker service in this process, on a unix socket.  Weights and
// exchange regions come without a loader.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "services/common/rpc/server.h"
#include "services/common/step/exchange_layout.h"
#include "services/common/worker/worker.h"
#include "services/worker_host/weight_source.h"
#include "services/worker_host/worker_service.h"
#include "tandem/worker/v1/worker.pb.h"

namespace tandem::testing {

// Hands out one model and the exchange regions it was given.  Thread-safe.
class LocalWeightSource final : public WeightSource {
 public:
  explicit LocalWeightSource(std::shared_ptr<const WeightSet> weights)
      : weights_(std::move(weights)) {}

  absl::StatusOr<LeasedWeights> FetchWeights(const std::string& loader_target,
                                             const std::string& model_id,
                                             const std::string& holder) override;
  absl::StatusOr<LeasedWeights> FetchOwnWeights(const std::string& model_id,
                                                const std::string& model_name,
                                                const std::string& holder,
                                                const Progress& progress) override;
  bool IsAlive(const LeasedWeights& /*weights*/) const override { return lease_alive; }
  absl::StatusOr<UniqueFd> FetchExchange(const std::string& loader_target,
                                         const std::string& lease_token,
                                         uint32_t region_id) override;

  // Adds a region; returns its id.
  uint32_t AddExchange(UniqueFd fd);
  void EndExchange(uint32_t region_id);

  std::atomic<bool> lease_alive{true};
  std::atomic<bool> loader_gone{false};  // fetches fail with UNAVAILABLE
  std::atomic<int> num_fetches{0};       // of weights

 private:
  const std::shared_ptr<const WeightSet> weights_;  // shared with the tests
  absl::Mutex mutex_;
  std::map<uint32_t, UniqueFd> exchanges_ ABSL_GUARDED_BY(mutex_);
  uint32_t last_exchange_ ABSL_GUARDED_BY(mutex_) = 0;
};

// A worker whose hooks decide what it does; they are called on the device thread.
class FakeWorker final : public BlockingWorker {
 public:
  struct Hooks {
    std::function<absl::StatusOr<SegmentResult>(const SegmentRun&)> run;
    std::function<absl::Status(const ModelLoad&)> load;
    std::function<absl::Status()> check_health;
    std::function<void(uint32_t plan)> unload;
    std::function<absl::StatusOr<DeviceCeilings>()> ceilings;
    // True: its answers are not held back.  False: as those of a device with a queue.
    bool runs_in_wait = false;
  };
  FakeWorker(WorkerDescription description, Hooks hooks)
      : description_(std::move(description)), hooks_(std::move(hooks)) {}

  const WorkerDescription& description() const override { return description_; }
  absl::StatusOr<LoadReport> Load(
      ModelLoad load, const std::function<void(double, std::string_view)>& progress) override;
  void Unload(uint32_t plan) override {
    if (hooks_.unload) hooks_.unload(plan);
  }
  absl::Status CheckHealth() override {
    return hooks_.check_health ? hooks_.check_health() : absl::OkStatus();
  }
  bool runs_in_wait() const override { return hooks_.runs_in_wait; }
  absl::StatusOr<DeviceCeilings> Ceilings() override {
    return hooks_.ceilings ? hooks_.ceilings() : Worker::Ceilings();
  }

 private:
  absl::StatusOr<SegmentResult> Run(const SegmentRun& run) override;

  const WorkerDescription description_;
  const Hooks hooks_;
};

// All stages, every format, `max_rows` rows.
WorkerDescription DescribeFakeWorker(const std::string& name, uint32_t max_rows = 64);

// A service on "unix:<path>", from construction to Stop.
class InProcessWorker {
 public:
  InProcessWorker(std::unique_ptr<Worker> worker, WeightSource& source,
                  const std::string& socket_path, WorkerServiceOptions options = {});
  ~InProcessWorker() { Stop(); }

  const std::string& target() const { return target_; }
  std::string execution_target() const { return target_ + ".exec"; }
  bool serving() const { return serving_; }
  WorkerService& service() { return *service_; }
  void Stop();

 private:
  std::string target_;
  std::atomic<bool> serving_{false};
  std::unique_ptr<WorkerService> service_;
  std::unique_ptr<Server> server_;
};

// An exchange region as the gateway holds it.
std::shared_ptr<const Exchange> MakeLocalExchange(const ModelConfig& config,
                                                  const StepLimits& limits, uint32_t num_lanes);

// The whole plan on one worker, its exchange region added to `source`.
worker::v1::LoadPlanRequest MakeLoadRequest(uint64_t epoch, const WeightSet& weights,
                                            const std::vector<Segment>& segments,
                                            const StepLimits& limits, const Exchange& exchange,
                                            LocalWeightSource& source);

}  // namespace tandem::testing

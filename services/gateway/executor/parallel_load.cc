#include "services/gateway/executor/parallel_load.h"

#include <thread>

#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"

namespace tandem::gateway {
namespace {

// Merges the progress of several workers into one.
class MergedProgress {
 public:
  MergedProgress(size_t num_workers, const Executor::Progress& progress)
      : fractions_(num_workers), progress_(progress) {}

  void Report(size_t worker, const std::string& name, double fraction, std::string_view phase) {
    absl::MutexLock lock(&mutex_);
    fractions_[worker] = fraction;
    double sum = 0.0;
    for (const double f : fractions_) sum += f;
    progress_(absl::StrFormat("%s: %s", name, std::string(phase)),
              sum / static_cast<double>(fractions_.size()));
  }

 private:
  absl::Mutex mutex_;
  std::vector<double> fractions_ ABSL_GUARDED_BY(mutex_);
  const Executor::Progress& progress_;
};

}  // namespace

absl::Status LoadInParallel(std::vector<WorkerLoad>& loads, absl::Duration deadline,
                            const Executor::Progress& progress) {
  MergedProgress merged(loads.size(), progress);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < loads.size(); ++i) {
    threads.emplace_back([&, i] {
      WorkerLoad& load = loads[i];
      load.report = load.client->LoadPlan(
          load.request,
          [&, i](double fraction, std::string_view phase) {
            merged.Report(i, load.name, fraction, phase);
          },
          deadline);
    });
  }
  for (std::thread& thread : threads) thread.join();
  absl::Status worst;
  for (const WorkerLoad& load : loads) {
    const absl::Status& status = load.report.status();
    if (status.ok() || (!worst.ok() && absl::IsUnavailable(status))) continue;
    worst = absl::Status(status.code(), absl::StrFormat("%s cannot load: %s", load.name,
                                                        std::string(status.message())));
  }
  return worst;
}

}  // namespace tandem::gateway

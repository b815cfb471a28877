// Watches whether the file of the served model still is the loaded one.
//
// The weights in memory are served in any case.  The watch only reports to status, metrics and the
// log what the next load will find.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "services/common/base/mutex.h"
#include "services/common/rpc/loader_client.h"

namespace tandem::gateway {

// Thread-safe.  Has a thread of its own.
class ModelFileWatch {
 public:
  static constexpr absl::Duration kPeriod = absl::Seconds(2);

  // `model`: the loader's.  A model without a file stamp (a synthetic one, or an older loader's) is
  // not watched.
  ModelFileWatch(std::unique_ptr<LoaderClient> loader, const loader::v1::Model& model,
                 absl::Duration period = kPeriod);
  ~ModelFileWatch();
  ModelFileWatch(const ModelFileWatch&) = delete;
  ModelFileWatch& operator=(const ModelFileWatch&) = delete;

  // Ends the watch; the notice stays.
  void Stop();
  // How the file has changed, and the consequence; empty: it has not.  Unchanged while the loader
  // is unreachable.
  std::string notice() const;

 private:
  void Run();
  void Look();
  // Waits for a period; false: the watch ends.
  bool Pause();

  const std::unique_ptr<LoaderClient> loader_;
  const std::string name_;
  const std::string model_id_;
  const std::string stamp_;
  const absl::Duration period_;
  mutable Mutex mutex_;
  CondVar stop_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::string notice_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace tandem::gateway

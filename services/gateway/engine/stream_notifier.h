// Calls the readers of streams, so that the engine's thread does none of their work.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "services/common/base/mutex.h"
#include "services/gateway/engine/token_stream.h"

namespace tandem::gateway {

// Thread-safe.
class StreamNotifier {
 public:
  StreamNotifier();
  // Calls Notify for what was posted, then ends.
  ~StreamNotifier();

  // Has stream->Notify() called soon, in order of posting.
  void Post(std::shared_ptr<TokenStream> stream);

 private:
  void Run();

  Mutex mutex_;
  CondVar changed_;
  std::vector<std::shared_ptr<TokenStream>> posted_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tandem::gateway

#include "services/gateway/engine/stream_notifier.h"

#include <utility>

namespace tandem::gateway {

StreamNotifier::StreamNotifier() : thread_([this] { Run(); }) {}

StreamNotifier::~StreamNotifier() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

void StreamNotifier::Post(std::shared_ptr<TokenStream> stream) {
  absl::MutexLock lock(&mutex_);
  posted_.push_back(std::move(stream));
}

void StreamNotifier::Run() {
  std::vector<std::shared_ptr<TokenStream>> streams;
  while (true) {
    streams.clear();
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(
          +[](StreamNotifier* self) ABSL_EXCLUSIVE_LOCKS_REQUIRED(self->mutex_) {
            return !self->posted_.empty() || self->stopping_;
          },
          this));
      if (posted_.empty()) return;
      streams.swap(posted_);
    }
    for (const auto& stream : streams) stream->Notify();
  }
}

}  // namespace tandem::gateway

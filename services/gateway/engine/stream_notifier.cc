#include "services/gateway/engine/stream_notifier.h"

#include <utility>

namespace tandem::gateway {

StreamNotifier::StreamNotifier() : thread_([this] { Run(); }) {}

StreamNotifier::~StreamNotifier() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.SignalOne();
  }
  thread_.join();
}

void StreamNotifier::Post(std::shared_ptr<TokenStream> stream) {
  MutexLock lock(mutex_);
  posted_.push_back(std::move(stream));
  if (posted_.size() == 1) changed_.SignalOne();
}

void StreamNotifier::Run() {
  std::vector<std::shared_ptr<TokenStream>> streams;
  while (true) {
    streams.clear();
    {
      MutexLock lock(mutex_);
      while (posted_.empty() && !stopping_) changed_.Wait(mutex_);
      if (posted_.empty()) return;
      streams.swap(posted_);
    }
    for (const auto& stream : streams) stream->Notify();
  }
}

}  // namespace tandem::gateway

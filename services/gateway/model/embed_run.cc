#include "services/gateway/model/embed_run.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/time/clock.h"

namespace tandem::gateway {

EmbedRun::EmbedRun(RequestSink& engine, std::vector<EngineRequest> requests, Done done,
                   size_t most_at_once)
    : engine_(engine),
      requests_(std::move(requests)),
      most_at_once_(most_at_once),
      done_(std::move(done)) {
  for (size_t i = 0; i < requests_.size(); ++i) waiting_.push_back(i);
  result_.embeddings.resize(requests_.size());
}

std::shared_ptr<EmbedRun> EmbedRun::Create(RequestSink& engine, std::vector<EngineRequest> requests,
                                           Done done, size_t most_at_once) {
  return std::shared_ptr<EmbedRun>(
      new EmbedRun(engine, std::move(requests), std::move(done), most_at_once));
}

void EmbedRun::Cancel() {
  {
    MutexLock lock(mutex_);
    Fail(absl::CancelledError("the client has gone"));
  }
  Pump();
}

void EmbedRun::Fail(const absl::Status& status) {
  if (result_.status.ok()) result_.status = status;
  waiting_.clear();
  for (const auto& [input, stream] : streams_) stream->Cancel();
}

void EmbedRun::Pump() {
  while (true) {
    size_t input = 0;
    std::shared_ptr<TokenStream> stream;
    {
      MutexLock lock(mutex_);
      if (waiting_.empty() || streams_.size() >= most_at_once_) break;
      input = waiting_.front();
      waiting_.pop_front();
      // Dropped by the stream when it has ended.
      stream = std::make_shared<TokenStream>(
          1, [self = shared_from_this(), input] { self->OnReady(input); });
      streams_.emplace(input, stream);
    }
    const absl::Status status = engine_.Submit(requests_[input], stream);
    if (status.ok()) continue;
    MutexLock lock(mutex_);
    streams_.erase(input);
    // Where others have filled the queue, an end of this request's own makes room.
    if (absl::IsResourceExhausted(status) && !streams_.empty() && result_.status.ok()) {
      waiting_.push_front(input);
      break;
    }
    Fail(status);
  }
  Done done;
  EmbedResult result;
  {
    MutexLock lock(mutex_);
    if (!waiting_.empty() || !streams_.empty() || done_ == nullptr) return;
    done = std::exchange(done_, nullptr);
    result = std::move(result_);
  }
  result.usage.set_total_seconds(absl::ToDoubleSeconds(absl::Now() - begin_));
  done(std::move(result));
}

void EmbedRun::OnReady(size_t input) {
  {
    MutexLock lock(mutex_);
    const auto found = streams_.find(input);
    if (found == streams_.end()) return;
    TokenStream::Batch batch = found->second->Take();
    if (!batch.end.has_value()) return;
    streams_.erase(found);
    AddUsage(batch.end->usage);
    if (batch.end->status.ok()) {
      result_.embeddings[input] = std::move(batch.end->embedding);
    } else {
      Fail(batch.end->status);
    }
  }
  Pump();
}

void EmbedRun::AddUsage(const v1::Usage& usage) {
  v1::Usage& sum = result_.usage;
  if (sum.prompt_tokens() == 0) sum.set_queue_seconds(usage.queue_seconds());
  sum.set_prompt_tokens(sum.prompt_tokens() + usage.prompt_tokens());
  for (const v1::DeviceTime& time : usage.device_times()) {
    auto& times = *sum.mutable_device_times();
    const auto found = std::find_if(times.begin(), times.end(), [&](const v1::DeviceTime& other) {
      return other.worker() == time.worker();
    });
    if (found == times.end()) {
      *sum.add_device_times() = time;
    } else {
      found->set_seconds(found->seconds() + time.seconds());
      found->set_joules(found->joules() + time.joules());
    }
  }
}

}  // namespace tandem::gateway

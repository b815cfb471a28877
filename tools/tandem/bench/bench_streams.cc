#include "tools/tandem/bench/bench_streams.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/status_macros.h"
#include "services/common/rpc/status.h"

namespace tandem {

BenchStreams::BenchStreams(GenerationStub& stub, std::vector<v1::GenerateRequest> requests)
    : stub_(stub) {
  for (v1::GenerateRequest& request : requests) {
    streams_.push_back(std::make_unique<Stream>());
    streams_.back()->request = std::move(request);
  }
  start_ = absl::Now();
  for (const auto& stream : streams_) {
    stream->thread = std::thread([this, stream = stream.get()] { Run(*stream); });
  }
}

BenchStreams::~BenchStreams() {
  for (const auto& stream : streams_) stream->context.TryCancel();
  for (const auto& stream : streams_) stream->thread.join();
}

void BenchStreams::Run(Stream& stream) {
  const auto reader = stub_.Generate(&stream.context, stream.request);
  v1::GenerateResponse response;
  while (reader->Read(&response)) {
    if (response.tokens_size() == 0) continue;
    const absl::Time now = absl::Now();
    MutexLock lock(mutex_);
    stream.tokens.insert(stream.tokens.end(), static_cast<size_t>(response.tokens_size()), now);
    changed_.SignalAll();
  }
  const absl::Status status = FromGrpcStatus(reader->Finish());
  MutexLock lock(mutex_);
  stream.ended = true;
  stream.status = status;
  changed_.SignalAll();
}

absl::Time BenchStreams::Reached(const Stream& stream, absl::Time since, size_t count) {
  const auto first = std::upper_bound(stream.tokens.begin(), stream.tokens.end(), since);
  const auto after = static_cast<size_t>(stream.tokens.end() - first);
  return after < count ? absl::InfiniteFuture() : *(first + static_cast<long>(count) - 1);
}

absl::StatusOr<absl::Time> BenchStreams::AwaitFirstTokens() {
  return AwaitTokens(absl::InfinitePast(), 1);
}

absl::StatusOr<absl::Time> BenchStreams::AwaitTokens(absl::Time since, size_t count) {
  MutexLock lock(mutex_);
  while (true) {
    absl::Time last = absl::InfinitePast();
    for (const auto& stream : streams_) {
      const absl::Time reached = Reached(*stream, since, count);
      last = std::max(last, reached);
      if (reached < absl::InfiniteFuture() || !stream->ended) continue;
      TANDEM_RETURN_IF_ERROR(stream->status);
      if (stream->tokens.empty()) return absl::InternalError("a stream ended without a token");
      return absl::FailedPreconditionError(absl::StrFormat(
          "a sequence came to the end of its context after %d tokens, before every other had made "
          "%d: a longer --context or fewer sequences",
          stream->tokens.size(), count));
    }
    if (last < absl::InfiniteFuture()) return last;
    changed_.Wait(mutex_);
  }
}

size_t BenchStreams::TokensBetween(absl::Time from, absl::Time to) const {
  MutexLock lock(mutex_);
  size_t count = 0;
  for (const auto& stream : streams_) {
    count += static_cast<size_t>(
        std::count_if(stream->tokens.begin(), stream->tokens.end(),
                      [&](absl::Time token) { return token > from && token <= to; }));
  }
  return count;
}

}  // namespace tandem

#include "services/gateway/http/http_answer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"

namespace tandem::gateway {
namespace {

bool IsPlain(const std::string& text) {
  return std::none_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_iscntrl(static_cast<unsigned char>(c)) && c != '\t';
  });
}

void Append(std::string& out, std::string_view name, std::string_view value) {
  out.append(name).append(": ").append(value).append("\r\n");
}

}  // namespace

HttpAnswer::HttpAnswer(std::weak_ptr<Listener> listener, HttpAnswerContext context)
    : listener_(std::move(listener)), context_(std::move(context)), close_(context_.close) {}

void HttpAnswer::Head(int status, std::string_view content_type, const HttpHeaders& headers,
                      std::optional<size_t> body_bytes) {
  const auto connection = listener_.lock();
  close_ = close_ || connection == nullptr || connection->closing() ||
           (context_.http10 && !body_bytes.has_value());
  status_ = status;
  out_.append(absl::StrFormat("HTTP/1.1 %d %s\r\n", status, std::string(HttpReason(status))));
  Append(out_, "Date",
         absl::FormatTime("%a, %d %b %Y %H:%M:%S GMT", absl::Now(), absl::UTCTimeZone()));
  if (!content_type.empty()) Append(out_, "Content-Type", content_type);
  if (!body_bytes.has_value()) {
    if (!context_.http10) Append(out_, "Transfer-Encoding", "chunked");
    Append(out_, "Cache-Control", "no-cache");
    Append(out_, "X-Accel-Buffering", "no");  // proxies that would hold back a stream
  } else if (status != 204 && status != 304) {
    Append(out_, "Content-Length", absl::StrFormat("%d", *body_bytes));
  }
  if (close_) {
    Append(out_, "Connection", "close");
  } else if (context_.http10) {
    Append(out_, "Connection", "keep-alive");
  }
  if (!context_.id.empty()) Append(out_, "X-Request-Id", context_.id);
  if (context_.trace.own.trace_id.valid()) {
    Append(out_, "traceparent", FormatTraceParent(context_.trace.own));
  }
  for (const HttpHeaders* fields : {&headers, &context_.headers}) {
    for (const auto& [name, value] : *fields) {
      if (IsPlain(name) && IsPlain(value)) Append(out_, name, value);
    }
  }
  out_.append("\r\n");
}

bool HttpAnswer::NeedsNotice() { return !std::exchange(noticed_, true); }

void HttpAnswer::Notify(bool needed) {
  if (!needed) return;
  if (const auto connection = listener_.lock()) connection->OnOutput();
}

void HttpAnswer::AbortListener() {
  if (const auto connection = listener_.lock()) connection->OnAbort();
}

bool HttpAnswer::Send(HttpResponse response) {
  std::shared_ptr<BodyBudget::Share> room;
  if (response.body.size() > kSmallBodyBytes) {
    const auto connection = listener_.lock();
    if (connection == nullptr) return false;
    room = connection->MakeRoom(context_.sender, response.body.size());
    if (room == nullptr) {
      return SendFailure(FailureOf(absl::UnavailableError(absl::StrFormat(
          "there is no memory for an answer of %d bytes while others are unread: read them, or ask "
          "for less at a time",
          response.body.size()))));
    }
  }
  std::shared_ptr<std::function<void()>> drained;
  std::function<void()> gone;
  bool notify = false;
  {
    MutexLock lock(mutex_);
    if (phase_ != Phase::kOpen && phase_ != Phase::kPending) return false;
    Head(response.status, response.content_type, response.headers, response.body.size());
    if (context_.method != "HEAD" && response.status != 204 && response.status != 304) {
      out_.append(response.body);
    }
    phase_ = Phase::kComplete;
    room_ = std::move(room);
    drained.swap(on_drained_);
    gone.swap(on_gone_);
    notify = NeedsNotice();
  }
  Notify(notify);
  return true;
}

bool HttpAnswer::SendFailure(const HttpFailure& failure) {
  const auto connection = listener_.lock();
  if (connection == nullptr) return false;
  HttpResponse response = connection->Format(context_.path, failure);
  if (failure.retry_after_seconds.has_value()) {
    response.headers.emplace_back("Retry-After",
                                  absl::StrFormat("%d", *failure.retry_after_seconds));
  }
  if (failure.http_status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return Send(std::move(response));
}

void HttpAnswer::BeginStream(HttpStreamStart start) {
  {
    MutexLock lock(mutex_);
    if (phase_ != Phase::kOpen) return;
    start_ = std::move(start);
    phase_ = Phase::kPending;
  }
  if (const auto connection = listener_.lock()) connection->OnStreamBegun();
}

void HttpAnswer::StreamHead() {
  if (phase_ != Phase::kPending) return;
  Head(start_.status, start_.content_type, start_.headers, std::nullopt);
  phase_ = Phase::kStreaming;
}

void HttpAnswer::Chunk(std::string_view bytes) {
  if (bytes.empty() || context_.method == "HEAD") return;
  if (context_.http10) {
    out_.append(bytes);
    return;
  }
  absl::StrAppend(&out_, absl::Hex(bytes.size()), "\r\n");
  out_.append(bytes).append("\r\n");
}

bool HttpAnswer::Write(std::string_view bytes) {
  bool behind = false;
  bool fits = false;
  {
    MutexLock lock(mutex_);
    if (phase_ != Phase::kPending && phase_ != Phase::kStreaming) return false;
    const size_t unread_bytes = out_.size() + taken_bytes_;
    behind = unread_bytes > context_.max_unsent_bytes;
    fits = unread_bytes + bytes.size() <= context_.max_unsent_bytes;
  }
  // A piece may be larger than the limit: its size says nothing about the reader.
  std::shared_ptr<BodyBudget::Share> room;
  if (!behind && !fits) {
    if (const auto connection = listener_.lock()) {
      room = connection->MakeRoom(context_.sender, bytes.size());
    }
  }
  if (!fits && room == nullptr) {
    AbortListener();
    return false;
  }
  bool notify = false;
  {
    MutexLock lock(mutex_);
    if (phase_ != Phase::kPending && phase_ != Phase::kStreaming) return false;
    StreamHead();
    Chunk(bytes);
    written_ = true;
    // The rest of an earlier piece with room fits within the limit by now.
    if (room != nullptr) room_ = std::move(room);
    notify = NeedsNotice();
  }
  Notify(notify);
  return true;
}

void HttpAnswer::End() {
  std::shared_ptr<std::function<void()>> drained;
  std::function<void()> gone;
  bool notify = false;
  {
    MutexLock lock(mutex_);
    if (phase_ != Phase::kPending && phase_ != Phase::kStreaming) return;
    StreamHead();
    if (!context_.http10 && context_.method != "HEAD") out_.append("0\r\n\r\n");
    phase_ = Phase::kComplete;
    drained.swap(on_drained_);
    gone.swap(on_gone_);
    notify = NeedsNotice();
  }
  Notify(notify);
}

void HttpAnswer::Abort() {
  {
    MutexLock lock(mutex_);
    if (phase_ == Phase::kComplete || phase_ == Phase::kGone) return;
  }
  AbortListener();
}

void HttpAnswer::Abandon() {
  Phase phase;
  {
    MutexLock lock(mutex_);
    phase = phase_;
  }
  if (phase == Phase::kOpen || phase == Phase::kPending) {
    SendFailure(FailureOf(absl::InternalError("the request was given up")));
  } else if (phase == Phase::kStreaming) {
    AbortListener();
  }
}

void HttpAnswer::SetCallbacks(std::function<void()> on_drained, std::function<void()> on_gone) {
  {
    MutexLock lock(mutex_);
    if (phase_ == Phase::kComplete) return;
    if (phase_ != Phase::kGone) {
      on_drained_ = std::make_shared<std::function<void()>>(std::move(on_drained));
      on_gone_ = std::move(on_gone);
      return;
    }
  }
  if (on_gone) on_gone();
}

bool HttpAnswer::gone() const {
  MutexLock lock(mutex_);
  return phase_ == Phase::kGone;
}

std::string HttpAnswer::Take() {
  MutexLock lock(mutex_);
  noticed_ = false;
  std::string bytes = std::move(out_);
  out_.clear();
  taken_bytes_ += bytes.size();
  return bytes;
}

void HttpAnswer::OnProgress(size_t num_bytes) {
  MutexLock lock(mutex_);
  taken_bytes_ -= std::min(taken_bytes_, num_bytes);
  moved_bytes_ += num_bytes;
  if (room_ == nullptr || moved_bytes_ < kSmallBodyBytes) return;
  moved_bytes_ = 0;
  room_->Move(absl::Now());
}

bool HttpAnswer::OnSent() {
  std::shared_ptr<std::function<void()>> drained;
  {
    MutexLock lock(mutex_);
    taken_bytes_ = 0;
    if (!out_.empty()) return false;
    room_ = nullptr;
    if (phase_ == Phase::kComplete) return true;
    if (std::exchange(written_, false)) drained = on_drained_;
  }
  if (drained != nullptr && *drained) (*drained)();
  return false;
}

void HttpAnswer::Gone() {
  std::shared_ptr<std::function<void()>> drained;
  std::function<void()> gone;
  {
    MutexLock lock(mutex_);
    std::string().swap(out_);
    room_ = nullptr;
    if (phase_ == Phase::kComplete) return;
    phase_ = Phase::kGone;
    drained.swap(on_drained_);
    gone.swap(on_gone_);
  }
  if (gone) gone();
}

bool HttpAnswer::complete() const {
  MutexLock lock(mutex_);
  return phase_ == Phase::kComplete;
}

bool HttpAnswer::close() const {
  MutexLock lock(mutex_);
  return close_;
}

int HttpAnswer::status() const {
  MutexLock lock(mutex_);
  return status_;
}

std::optional<absl::Duration> HttpAnswer::keep_alive_interval() const {
  MutexLock lock(mutex_);
  if ((phase_ != Phase::kPending && phase_ != Phase::kStreaming) || start_.keep_alive.empty()) {
    return std::nullopt;
  }
  return start_.keep_alive_interval;
}

void HttpAnswer::SendKeepAlive() {
  bool notify = false;
  {
    MutexLock lock(mutex_);
    if (phase_ != Phase::kPending && phase_ != Phase::kStreaming) return;
    StreamHead();
    Chunk(start_.keep_alive);
    notify = NeedsNotice();
  }
  Notify(notify);
}

}  // namespace tandem::gateway

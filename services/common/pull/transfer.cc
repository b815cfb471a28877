#include "services/common/pull/transfer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/status_macros.h"

namespace tandem::pull {
namespace {

constexpr int kMaxRedirects = 10;
constexpr absl::Duration kTick = absl::Milliseconds(200);

bool IsStrong(const std::string& etag) { return etag.size() > 2 && etag.front() == '"'; }

}  // namespace

struct Transfer::Slot {
  Transfer* transfer = nullptr;
  CurlEasy handle = MakeEasy();
  CurlList fields;
  HttpHeaders headers;
  std::string url;  // that it asks
  bool active = false;
  uint64_t begin = 0, at = 0, end = 0;
  Verdict verdict = Verdict::kNone;
  std::string trouble;  // what Judge found
};

Transfer::Transfer(std::string url, HttpOptions http, PartFile& part, TransferOptions options)
    : url_(std::move(url)),
      http_(std::move(http)),
      part_(part),
      options_(options),
      multi_(MakeMulti()),
      max_active_(static_cast<size_t>(std::max(1, options.connections))) {
  for (size_t i = 0; i < max_active_; ++i) {
    slots_.push_back(std::make_unique<Slot>());
    slots_.back()->transfer = this;
  }
  // One connection a range: HTTP/2 would put them all on one.
  curl_multi_setopt(multi_.get(), CURLMOPT_PIPELINING, static_cast<long>(CURLPIPE_NOTHING));
}

Transfer::~Transfer() { AbortAll(); }

size_t Transfer::num_active() const {
  return static_cast<size_t>(
      std::count_if(slots_.begin(), slots_.end(), [](const auto& slot) { return slot->active; }));
}

void Transfer::Queue(std::vector<PartFile::Range> missing) {
  queue_.clear();
  for (auto [begin, end] : missing) {
    for (; begin < end; begin += std::min(options_.segment_bytes, end - begin)) {
      queue_.emplace_back(begin, std::min(end, begin + options_.segment_bytes));
    }
  }
}

void Transfer::Begin(Slot& slot, PartFile::Range segment) {
  slot.begin = slot.at = segment.first;
  slot.end = segment.second;
  slot.verdict = Verdict::kNone;
  slot.trouble.clear();
  slot.headers = HttpHeaders();
  slot.url = url_;
  CURL* handle = slot.handle.get();
  slot.fields = Prepare(handle, slot.url, http_, slot.headers);
  if (!without_ranges_) {
    curl_easy_setopt(handle, CURLOPT_RANGE,
                     absl::StrFormat("%d-%d", segment.first, segment.second - 1).c_str());
    if (IsStrong(part_.etag())) {
      const std::string field = "If-Range: " + part_.etag();
      curl_slist_append(slot.fields.get(), field.c_str());
    }
  }
  curl_easy_setopt(handle, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, TakeBody);
  curl_easy_setopt(handle, CURLOPT_WRITEDATA, &slot);
  curl_easy_setopt(handle, CURLOPT_PRIVATE, &slot);
  slot.active = true;
  curl_multi_add_handle(multi_.get(), handle);
}

void Transfer::Release(Slot& slot) {
  if (!slot.active) return;
  curl_multi_remove_handle(multi_.get(), slot.handle.get());
  slot.active = false;
}

void Transfer::AbortAll() {
  for (const auto& slot : slots_) Release(*slot);
}

size_t Transfer::TakeBody(char* bytes, size_t size, size_t count, void* user) {
  auto& slot = *static_cast<Slot*>(user);
  return slot.transfer->Take(slot, {bytes, size * count});
}

// What the answer's head says of its body.
Transfer::Verdict Transfer::Judge(Slot& slot) {
  long status = 0;
  curl_easy_getinfo(slot.handle.get(), CURLINFO_RESPONSE_CODE, &status);
  if (status != 200 && status != 206) return Verdict::kSkip;
  const std::string etag = slot.headers.Get("etag");
  if (!etag.empty() && !part_.etag().empty() && etag != part_.etag()) return Verdict::kChanged;
  const uint64_t size = part_.identity().size;
  if (status == 200) {
    const auto length = slot.headers.Number("content-length");
    if (length.has_value() && *length != size) return Verdict::kChanged;
    if (!without_ranges_) return Verdict::kNoRanges;
  } else {
    const auto range = ParseContentRange(slot.headers.Get("content-range"));
    if (!range.has_value() || range->begin != slot.begin) {
      slot.trouble = absl::StrFormat("asked for byte %d, got '%s'", slot.begin,
                                     slot.headers.Get("content-range"));
      return Verdict::kBroken;
    }
    if (range->total != size) return Verdict::kChanged;
  }
  if (part_.etag().empty()) part_.set_etag(etag);
  return Verdict::kTake;
}

size_t Transfer::Take(Slot& slot, std::string_view bytes) {
  if (slot.verdict == Verdict::kNone) slot.verdict = Judge(slot);
  if (slot.verdict == Verdict::kSkip) return bytes.size();  // an error's text
  if (slot.verdict != Verdict::kTake) return 0;
  received_bytes_ += bytes.size();
  const std::string_view wanted =
      bytes.substr(0, std::min<uint64_t>(bytes.size(), slot.end - slot.at));
  const absl::Status status = part_.Write(slot.at, wanted);
  if (!status.ok()) {
    error_ = status;
    slot.verdict = Verdict::kFileError;
    return 0;
  }
  slot.at += wanted.size();
  if (!without_ranges_ || slot.at > furthest_) failures_ = redirects_ = 0;
  furthest_ = std::max(furthest_, slot.at);
  return wanted.size();  // fewer than came: more than was asked for, and the connection ends here
}

void Transfer::Failed(const Slot& slot, const std::string& why,
                      std::optional<absl::Duration> wait) {
  const bool progress = slot.at > slot.begin && !without_ranges_;
  if (!progress) ++failures_;
  if (failures_ > options_.max_failures) {
    error_ = absl::UnavailableError(
        absl::StrFormat("%s: %s (%d times in a row); the bytes are kept, so pull again to go on",
                        PrintableUrl(url_), why, failures_));
    return;
  }
  if (wait.has_value() && *wait > options_.longest_wait) {
    error_ = absl::UnavailableError(absl::StrFormat(
        "%s: %s, and asks to wait %s", PrintableUrl(url_), why, absl::FormatDuration(*wait)));
    return;
  }
  if (!wait.has_value() && progress) return;  // at once
  const absl::Duration backoff =
      std::min(options_.first_backoff * (1 << std::clamp(failures_ - 1, 0, 6)), absl::Seconds(30));
  not_before_ = std::max(not_before_, absl::Now() + wait.value_or(backoff));
}

// The host sends the whole file whatever is asked for: one connection, from the first byte.
absl::Status Transfer::WithoutRanges() {
  AbortAll();
  without_ranges_ = true;
  max_active_ = 1;
  queue_.assign(1, {0, part_.identity().size});
  return part_.Restart(part_.identity());
}

void Transfer::SettleStatus(Slot& slot, long status) {
  const std::string answers = absl::StrFormat("answers %d", status);
  if (status >= 300 && status < 400) {
    const auto target = FollowRedirect(slot.url, slot.headers.Get("location"));
    if (slot.url != url_) return;  // another slot reported first
    if (!target.ok()) {
      error_ = target.status();
    } else if (++redirects_ > kMaxRedirects) {
      error_ =
          absl::UnavailableError(absl::StrFormat("%s redirects over and over", PrintableUrl(url_)));
    } else {
      url_ = *target;
    }
    return;
  }
  if (status == 401 || status == 403 || status == 404 || status == 410) {
    end_ = TransferEnd::kRefused;
    return;
  }
  if (status == 416) {
    // "bytes */SIZE" says what the host has.
    const std::string range = slot.headers.Get("content-range");
    if (range.starts_with("bytes */") &&
        range != absl::StrFormat("bytes */%d", part_.identity().size)) {
      end_ = TransferEnd::kChanged;
      return;
    }
    Failed(slot, answers + " to a range that the file has");
    return;
  }
  if (status != 429 && status < 500) {
    error_ = absl::UnavailableError(absl::StrFormat("%s %s", PrintableUrl(url_), answers));
    return;
  }
  std::optional<absl::Duration> wait;
  curl_off_t seconds = 0;
  if (curl_easy_getinfo(slot.handle.get(), CURLINFO_RETRY_AFTER, &seconds) == CURLE_OK &&
      seconds > 0) {
    wait = absl::Seconds(seconds);
  }
  if (status == 429) max_active_ = std::max<size_t>(1, max_active_ / 2);
  Failed(slot, answers, wait);
}

void Transfer::Settle(Slot& slot, CURLcode code) {
  Release(slot);
  if (slot.verdict == Verdict::kNone && code == CURLE_OK) slot.verdict = Judge(slot);
  if (slot.at < slot.end && !without_ranges_) queue_.emplace_front(slot.at, slot.end);
  if (slot.at < slot.end && without_ranges_) queue_.assign(1, {0, part_.identity().size});
  switch (slot.verdict) {
    case Verdict::kFileError:
      return;  // error_ is set
    case Verdict::kChanged:
      end_ = TransferEnd::kChanged;
      return;
    case Verdict::kNoRanges:
      error_ = WithoutRanges();
      return;
    case Verdict::kBroken:
      Failed(slot, slot.trouble);
      return;
    case Verdict::kSkip: {
      long status = 0;
      curl_easy_getinfo(slot.handle.get(), CURLINFO_RESPONSE_CODE, &status);
      SettleStatus(slot, status);
      return;
    }
    case Verdict::kTake:
    case Verdict::kNone:
      break;
  }
  if (slot.at == slot.end) return;
  const absl::Status status = CurlStatus(code, url_);
  if (!status.ok() && !absl::IsUnavailable(status)) {
    error_ = status;
    return;
  }
  Failed(slot, code == CURLE_OK ? "ends early" : curl_easy_strerror(code));
}

void Transfer::Assign(absl::Time now) {
  if (now < not_before_) return;
  for (const auto& slot : slots_) {
    if (queue_.empty() || num_active() >= max_active_) return;
    if (slot->active) continue;
    const PartFile::Range segment = queue_.front();
    queue_.pop_front();
    Begin(*slot, segment);
  }
}

absl::StatusOr<TransferEnd> Transfer::Run(const std::function<bool(uint64_t)>& progress) {
  Queue(part_.Missing());
  absl::Time save_at = absl::Now() + options_.save_interval;
  while (num_active() > 0 || !queue_.empty()) {
    const absl::Time now = absl::Now();
    Assign(now);
    int running = 0;
    curl_multi_perform(multi_.get(), &running);
    int left = 0;
    while (const CURLMsg* message = curl_multi_info_read(multi_.get(), &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      const CURLcode code = message->data.result;
      char* slot = nullptr;
      curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &slot);
      Settle(*reinterpret_cast<Slot*>(slot), code);
      if (!error_.ok()) return error_;
      if (end_.has_value()) return *end_;
    }
    if (!progress(part_.done_bytes())) return absl::CancelledError("stopped");
    if (now >= save_at) {
      TANDEM_RETURN_IF_ERROR(part_.Save());
      save_at = absl::Now() + options_.save_interval;
    }
    if (num_active() == 0 && queue_.empty()) break;
    const bool idle = num_active() < max_active_ && !queue_.empty();
    const absl::Duration wait =
        idle ? std::clamp(not_before_ - absl::Now(), absl::ZeroDuration(), kTick) : kTick;
    curl_multi_poll(multi_.get(), nullptr, 0, static_cast<int>(absl::ToInt64Milliseconds(wait)),
                    nullptr);
  }
  return TransferEnd::kComplete;
}

}  // namespace tandem::pull

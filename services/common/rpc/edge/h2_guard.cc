#include "services/common/rpc/edge/h2_guard.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"

namespace tandem {
namespace {

// What frames cost that carry nothing.  An answer lets its client send some: a client may grant
// windows for the stream and the connection, and measure the round trip, for every frame.
constexpr double kSettingsCost = 10;
constexpr double kPingCost = 2;
constexpr double kControlOfAnswer = 5;
// gRPC skips the payload of a frame that it does not know.  What it keeps of frames beside that one
// may hold the whole buffer that both were read into, so that such bytes have a price.
constexpr double kIgnoredBytesPerCost = 64;
// Resets of one connection while all together are too many.
constexpr int kResetsInDebt = 8;

H2Verdict Calm(H2Fault fault, std::string why) {
  return {fault, H2Error::kEnhanceYourCalm, std::move(why)};
}

H2Verdict TooManyResets() { return Calm(H2Fault::kResets, "too many requests reset"); }

H2Verdict Broken(std::string why) {
  return {H2Fault::kProtocol, H2Error::kProtocolError, std::move(why)};
}

bool Passed(int64_t since_ns, absl::Duration limit, int64_t now_ns) {
  return now_ns - since_ns > absl::ToInt64Nanoseconds(limit);
}

}  // namespace

std::string_view H2FaultName(H2Fault fault) {
  constexpr std::string_view kNames[kNumH2Faults] = {
      "none",   "preface", "protocol",      "frame_bytes", "header_bytes", "open_streams",
      "resets", "control", "request_bytes", "slow",        "idle"};
  return kNames[static_cast<size_t>(fault)];
}

H2Guard::H2Guard(const H2Limits& limits, H2Totals& totals, H2Group& group, int64_t now_ns)
    : limits_(limits),
      totals_(totals),
      group_(group),
      opened_ns_(now_ns),
      now_ns_(now_ns),
      idle_since_ns_(now_ns),
      streams_(limits.stream_burst, limits.streams_per_second),
      own_openings_(limits.own_openings),
      client_resets_(limits.reset_burst, limits.resets_per_second),
      control_(limits.control_burst, limits.control_per_second) {}

H2Guard::~H2Guard() { Drop(); }

void H2Guard::Drop() {
  totals_.num_streams -= num_streams();
  totals_.num_bytes -= std::exchange(num_bytes_, 0);
  open_.clear();
  resets_.clear();
}

H2Verdict H2Guard::OnClient(std::string_view in, int64_t now_ns) {
  now_ns_ = now_ns;
  opening_pause_ns_ = 0;
  if (shed_too_often_) return TooManyResets();
  if (preface_bytes_ < kH2Preface.size()) {
    const size_t count = std::min(in.size(), kH2Preface.size() - preface_bytes_);
    if (in.substr(0, count) != kH2Preface.substr(preface_bytes_, count)) {
      return {H2Fault::kPreface, H2Error::kProtocolError, "this is not HTTP/2"};
    }
    preface_bytes_ += count;
    client_bytes_ += count;
    in.remove_prefix(count);
  }
  const uint64_t released_before = released_bytes_;
  while (!in.empty()) {
    const H2FrameScanner::Step step = client_.Next(in);
    if (step.payload) {
      const auto grant = windows_.OnClientPayload(client_.frame(), in.substr(0, step.used));
      if (const auto stream = Find(grant.stream); stream != open_.end()) {
        stream->credit += grant.bytes;
      }
    }
    in.remove_prefix(step.used);
    client_bytes_ += step.used;
    if (step.header) {
      windows_.OnClientFrame();
      H2Verdict verdict = OnClientFrame(client_.frame(), now_ns);
      if (!verdict.ok()) return verdict;
    }
    if (step.end) {
      H2Verdict verdict = OnClientFrameEnd(client_.frame(), now_ns);
      if (!verdict.ok()) return verdict;
      if (block_stream_ == 0) released_bytes_ = client_bytes_;
    }
    if (shed_too_often_) return TooManyResets();
  }
  if (released_bytes_ == client_bytes_) {
    incomplete_since_ns_ = 0;
  } else if (incomplete_since_ns_ == 0 || released_bytes_ != released_before) {
    incomplete_since_ns_ = now_ns;
  }
  return {};
}

H2Verdict H2Guard::OnClientFrame(const H2Frame& frame, int64_t now_ns) {
  if (frame.length > kH2MaxFrameBytes) {
    return {H2Fault::kFrameBytes, H2Error::kFrameSizeError,
            absl::StrFormat("a frame of %d bytes; at most %d are allowed", frame.length,
                            kH2MaxFrameBytes)};
  }
  if (!established_ && (frame.type != H2FrameType::kSettings || frame.has(kH2Ack))) {
    return Broken("the first frame is not SETTINGS");
  }
  if ((frame.type == H2FrameType::kContinuation) != (block_stream_ != 0)) {
    return Broken(block_stream_ != 0 ? "a header block is interrupted by another frame"
                                     : "CONTINUATION without HEADERS");
  }
  switch (frame.type) {
    case H2FrameType::kHeaders:
      return OnHeaders(frame, now_ns);
    case H2FrameType::kContinuation:
      return OnContinuation(frame);
    case H2FrameType::kData:
      return OnData(frame, now_ns);
    case H2FrameType::kPushPromise:
      return Broken("PUSH_PROMISE from a client");
    case H2FrameType::kRstStream:
      if (frame.stream == 0 || frame.stream > last_stream_) {
        return Broken(
            absl::StrFormat("RST_STREAM of stream %d, which was not opened", frame.stream));
      }
      return {};  // counted at its end
    case H2FrameType::kSettings:
      if (frame.has(kH2Ack)) {
        knows_limits_ = true;
        return Control(1, now_ns);
      }
      return Control(kSettingsCost + frame.length / 6.0, now_ns);
    case H2FrameType::kPing:
      return Control(frame.has(kH2Ack) ? 1 : kPingCost, now_ns);
    default:
      return Control(1 + frame.length / kIgnoredBytesPerCost, now_ns);
  }
}

H2Verdict H2Guard::OnHeaders(const H2Frame& frame, int64_t now_ns) {
  if (frame.stream % 2 == 0) {
    return Broken(
        absl::StrFormat("HEADERS of stream %d; a client's streams are odd", frame.stream));
  }
  block_stream_ = frame.stream;
  block_ends_stream_ = frame.has(kH2EndStream);
  block_bytes_ = 0;
  block_frames_ = 0;
  if (frame.stream > last_stream_) {
    if (knows_limits_ && num_streams() >= limits_.max_streams) {
      return Calm(H2Fault::kStreams, absl::StrFormat("more than %d requests open on one connection",
                                                     limits_.max_streams));
    }
    streams_.Take(1, now_ns);
    TakeOpening(now_ns);
  } else {
    // Trailers.  Of a stream that is not open: it crossed with the server's end of it.
    H2Verdict verdict = Control(1 + frame.length / kIgnoredBytesPerCost, now_ns);
    if (!verdict.ok()) return verdict;
  }
  return OnContinuation(frame);
}

H2Verdict H2Guard::OnContinuation(const H2Frame& frame) {
  if (frame.stream != block_stream_) {
    return Broken("CONTINUATION of another stream than its HEADERS");
  }
  block_bytes_ += frame.length;
  if (block_bytes_ > limits_.max_header_bytes) {
    return Calm(H2Fault::kHeaderBytes,
                absl::StrFormat("a header block of more than %d bytes", limits_.max_header_bytes));
  }
  if (block_frames_++ > limits_.max_continuations) {
    return Calm(H2Fault::kHeaderBytes, absl::StrFormat("a header block in more than %d frames",
                                                       limits_.max_continuations + 1));
  }
  return {};
}

H2Verdict H2Guard::OnData(const H2Frame& frame, int64_t now_ns) {
  if (frame.stream == 0 || frame.stream > last_stream_) {
    return Broken(absl::StrFormat("DATA of stream %d, which was not opened", frame.stream));
  }
  const auto stream = Find(frame.stream);
  if (stream == open_.end()) return Control(1, now_ns);  // crossed with the server's end
  if (stream->client_ended) {
    return Broken(absl::StrFormat("DATA of stream %d after its end", frame.stream));
  }
  if (frame.length == 0 && !frame.has(kH2EndStream)) return Control(1, now_ns);
  const uint64_t charge = frame.length + kH2FrameCharge;
  stream->num_bytes += charge;
  num_bytes_ += charge;
  totals_.num_bytes += charge;
  if (stream->num_bytes > limits_.max_request_bytes) {
    Reset(stream, H2Fault::kRequestBytes);
  } else if (num_bytes_ > limits_.max_requests_bytes) {
    ShedLargest();
  }
  return {};
}

H2Verdict H2Guard::OnClientFrameEnd(const H2Frame& frame, int64_t now_ns) {
  switch (frame.type) {
    case H2FrameType::kSettings:
      established_ = true;
      return {};
    case H2FrameType::kHeaders:
    case H2FrameType::kContinuation:
      if (frame.has(kH2EndHeaders)) OnBlockEnd(now_ns);
      return {};
    case H2FrameType::kData: {
      const auto stream = Find(frame.stream);
      if (stream != open_.end() && frame.has(kH2EndStream)) {
        stream->client_ended = true;
        EndStream(stream);
        idle_since_ns_ = now_ns;
      }
      return {};
    }
    case H2FrameType::kRstStream: {
      const auto stream = Find(frame.stream);
      if (stream == open_.end()) return Control(1, now_ns);
      const bool unanswered = !stream->server_ended;
      Close(stream);
      idle_since_ns_ = now_ns;
      return unanswered ? CountReset(now_ns) : Control(1, now_ns);
    }
    default:
      return {};
  }
}

void H2Guard::OnBlockEnd(int64_t now_ns) {
  const uint32_t id = std::exchange(block_stream_, 0);
  if (id > last_stream_) {
    last_stream_ = id;
    open_.push_back({.id = id, .client_ended = block_ends_stream_, .opened_ns = now_ns});
    ++totals_.num_streams;
    // The client may not have heard of the limit yet: it is to try again.
    if (num_streams() > limits_.max_streams) {
      Reset(std::prev(open_.end()), H2Fault::kStreams, H2Error::kRefusedStream);
    }
    return;
  }
  const auto stream = Find(id);
  if (stream == open_.end() || !block_ends_stream_) return;
  stream->client_ended = true;
  EndStream(stream);
}

H2Verdict H2Guard::OnServer(std::string_view in, int64_t now_ns) {
  H2Verdict first;
  while (!in.empty()) {
    const H2FrameScanner::Step step = server_.Next(in);
    in.remove_prefix(step.used);
    if (!step.header) continue;
    H2Verdict verdict = OnServerFrame(server_.frame(), now_ns);
    if (first.ok()) first = std::move(verdict);
  }
  return first;
}

H2Verdict H2Guard::OnServerFrame(const H2Frame& frame, int64_t now_ns) {
  const bool headers = frame.type == H2FrameType::kHeaders;
  if (headers || frame.type == H2FrameType::kContinuation) {
    server_in_block_ = !frame.has(kH2EndHeaders);
  }
  if (!headers && frame.type != H2FrameType::kData && frame.type != H2FrameType::kRstStream) {
    return {};
  }
  control_.Add(kControlOfAnswer);
  const bool data = frame.type == H2FrameType::kData;
  if (data) windows_.OnServerData(frame.length);
  const auto stream = Find(frame.stream);
  if (stream == open_.end()) return {};
  const bool first = !std::exchange(stream->answered, true);
  if (first && frame.type != H2FrameType::kRstStream) ReturnOpening();
  if (data) stream->credit -= frame.length;
  if (frame.type == H2FrameType::kRstStream) {
    // A client can have the server reset a stream by frames that are wrong.
    const bool unanswered = !stream->server_ended;
    Close(stream);
    idle_since_ns_ = now_ns;
    return unanswered ? CountReset(now_ns) : H2Verdict{};
  }
  if (frame.has(kH2EndStream)) {
    stream->server_ended = true;
    EndStream(stream);
    idle_since_ns_ = now_ns;
  }
  return {};
}

H2Verdict H2Guard::OnTime(int64_t now_ns) {
  now_ns_ = now_ns;
  if (!established_ && Passed(opened_ns_, limits_.preface_timeout, now_ns)) {
    return Calm(H2Fault::kSlow, absl::StrFormat("no HTTP/2 preface within %s",
                                                absl::FormatDuration(limits_.preface_timeout)));
  }
  if (incomplete_since_ns_ != 0 && Passed(incomplete_since_ns_, limits_.frame_timeout, now_ns)) {
    return Calm(H2Fault::kSlow, absl::StrFormat("a frame or header block not complete within %s",
                                                absl::FormatDuration(limits_.frame_timeout)));
  }
  for (size_t i = 0; i < open_.size();) {
    if (TooSlow(open_[i], now_ns)) {
      Reset(open_.begin() + static_cast<ptrdiff_t>(i), H2Fault::kSlow);
    } else {
      ++i;
    }
  }
  if (!open_.empty()) {
    idle_since_ns_ = now_ns;
  } else if (Passed(idle_since_ns_, limits_.idle_timeout, now_ns)) {
    return {H2Fault::kIdle, H2Error::kNoError, "idle"};
  }
  return {};
}

bool H2Guard::TooSlow(Stream& stream, int64_t now_ns) const {
  if (stream.unfinished()) return Passed(stream.opened_ns, limits_.request_timeout, now_ns);
  if (!stream.answered || stream.server_ended || windows_.open(stream.credit)) {
    stream.blocked_since_ns = 0;
    return false;
  }
  if (stream.blocked_since_ns == 0) stream.blocked_since_ns = now_ns;
  return Passed(stream.blocked_since_ns, limits_.blocked_timeout, now_ns);
}

void H2Guard::OnResume(int64_t now_ns) {
  if (incomplete_since_ns_ != 0) incomplete_since_ns_ = now_ns;
}

std::vector<H2Reset> H2Guard::TakeResets() { return std::exchange(resets_, {}); }

bool H2Guard::ShedLargest() {
  const auto largest =
      std::max_element(open_.begin(), open_.end(),
                       [](const Stream& a, const Stream& b) { return a.num_bytes < b.num_bytes; });
  if (largest == open_.end()) return false;
  Reset(largest, H2Fault::kRequestBytes);
  return true;
}

bool H2Guard::ShedNewest() {
  if (open_.empty()) return false;
  const auto newest = std::find_if(open_.rbegin(), open_.rend(),
                                   [](const Stream& stream) { return stream.unfinished(); });
  Reset(newest == open_.rend() ? std::prev(open_.end()) : std::prev(newest.base()),
        H2Fault::kStreams);
  return true;
}

uint32_t H2Guard::num_unfinished() const {
  return static_cast<uint32_t>(std::count_if(
      open_.begin(), open_.end(), [](const Stream& stream) { return stream.unfinished(); }));
}

bool H2Guard::waits_for_client() const {
  return std::all_of(open_.begin(), open_.end(),
                     [](const Stream& stream) { return stream.unfinished(); });
}

void H2Guard::TakeOpening(int64_t now_ns) {
  if (own_openings_ > 0) {
    --own_openings_;
    return;
  }
  ++owed_openings_;
  group_.openings.Take(1, now_ns);
  opening_pause_ns_ = group_.openings.debt_ns();
}

void H2Guard::ReturnOpening() {
  if (owed_openings_ > 0) {
    --owed_openings_;
    group_.openings.Add(1);
  } else {
    own_openings_ = std::min(own_openings_ + 1, limits_.own_openings);
  }
}

H2Verdict H2Guard::Control(double cost, int64_t now_ns) {
  if (control_.Take(cost, now_ns)) return {};
  return Calm(H2Fault::kControl, "too many frames that carry nothing");
}

H2Verdict H2Guard::CountReset(int64_t now_ns) {
  const bool in_total = totals_.resets.Take(1, now_ns);
  if (client_resets_.Take(1, now_ns) && (in_total || ++resets_in_debt_ <= kResetsInDebt)) return {};
  return TooManyResets();
}

H2Guard::Streams::iterator H2Guard::Find(uint32_t id) {
  const auto at = std::lower_bound(open_.begin(), open_.end(), id,
                                   [](const Stream& stream, uint32_t x) { return stream.id < x; });
  return at != open_.end() && at->id == id ? at : open_.end();
}

void H2Guard::EndStream(Streams::iterator stream) {
  if (stream->client_ended && stream->server_ended) Close(stream);
}

void H2Guard::Close(Streams::iterator stream) {
  num_bytes_ -= stream->num_bytes;
  totals_.num_bytes -= stream->num_bytes;
  --totals_.num_streams;
  open_.erase(stream);
}

void H2Guard::Reset(Streams::iterator stream, H2Fault fault, H2Error error) {
  resets_.push_back({stream->id, fault, error});
  if (fault != H2Fault::kSlow && !CountReset(now_ns_).ok()) shed_too_often_ = true;
  Close(stream);
}

}  // namespace tandem

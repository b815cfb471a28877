// Limits what one HTTP/2 connection can do to a gRPC server.  A state machine over the bytes of
// both directions: it never blocks, never allocates by a length that a peer claims, never decodes
// headers.
//
//   client --> [whole frames, whole header blocks] --> gRPC
//   client <-- [as they come]                      <-- gRPC
//
// It reads frame headers: type, flags, stream, length.  They show which requests are open, how many
// bytes each has sent, and how often the client resets, pings and sends empty frames.  A client
// over a limit loses its connection (GOAWAY ENHANCE_YOUR_CALM).  A request that is too long or
// never ends loses its stream (RST_STREAM). docs/decisions/0018-a-filter-before-grpc.md says why
// gRPC 1.51 needs it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "services/common/rpc/edge/h2_frame.h"
#include "services/common/rpc/edge/h2_windows.h"
#include "services/common/rpc/edge/token_bucket.h"

namespace tandem {

struct H2Limits {
  // Per connection.
  uint32_t max_streams = 256;              // requests open at a time, as gRPC announces it
  uint32_t max_header_bytes = 32 << 10;    // of a header block as it is sent
  uint32_t max_continuations = 8;          // frames of a header block after the first
  uint64_t max_request_bytes = 17 << 20;   // of one request, see kH2FrameCharge
  uint64_t max_requests_bytes = 34 << 20;  // of its open requests together
  double stream_burst = 2000, streams_per_second = 2000;  // above: reading pauses
  double reset_burst = 1000, resets_per_second = 100;     // of requests that had no answer yet
  double control_burst = 4000, control_per_second = 400;  // empty and control frames
  // Requests that it may open without an answer to any before it takes from its group.
  uint32_t own_openings = 16;

  // For all connections of a group together: requests opened and not answered.  Above: reading
  // pauses.  Without this, a client that connects again and again opens as many as it likes.
  double opening_burst = 4096, openings_per_second = 500;
  double opening_debt_seconds = 10;  // the longest pause

  // For all connections together.
  uint32_t max_total_streams = 2048;
  uint64_t max_total_bytes = 128 << 20;
  double total_reset_burst = 4000, total_resets_per_second = 1000;

  absl::Duration preface_timeout = absl::Seconds(10);
  absl::Duration frame_timeout = absl::Seconds(20);    // from a frame's first byte to its last
  absl::Duration request_timeout = absl::Seconds(60);  // from a request's header to its end
  absl::Duration idle_timeout = absl::Minutes(15);     // without an open request
  absl::Duration blocked_timeout = absl::Seconds(30);  // the client takes no byte of an answer
};

// Added to the bytes of each DATA frame, because gRPC keeps a record for each.
inline constexpr uint64_t kH2FrameCharge = 64;

// Part of max_request_bytes that is reserved for the frames of the longest message.
inline constexpr uint64_t kH2RequestReserve = 1 << 20;

// Why a connection ends, or a stream is reset.
enum class H2Fault : uint8_t {
  kNone,
  kPreface,       // not HTTP/2
  kProtocol,      // frames in an order that HTTP/2 forbids
  kFrameBytes,    // a frame longer than 16 KiB
  kHeaderBytes,   // a header block too long, or in too many frames
  kStreams,       // too many requests open
  kResets,        // too many requests reset
  kControl,       // too many empty or control frames
  kRequestBytes,  // requests too long
  kSlow,          // preface, frame or request not complete in time
  kIdle,
};
inline constexpr int kNumH2Faults = 11;
// "header_bytes"
std::string_view H2FaultName(H2Fault fault);

// Totals over all connections.  Thread-compatible.
struct H2Totals {
  explicit H2Totals(const H2Limits& limits)
      : resets(limits.total_reset_burst, limits.total_resets_per_second) {}
  uint32_t num_streams = 0;
  uint64_t num_bytes = 0;
  TokenBucket resets;
};

// What the connections of one client share.  Thread-compatible.
struct H2Group {
  explicit H2Group(const H2Limits& limits)
      : openings(limits.opening_burst, limits.openings_per_second, limits.opening_debt_seconds) {}
  TokenBucket openings;
};

struct H2Verdict {
  H2Fault fault = H2Fault::kNone;  // none: go on
  H2Error error = H2Error::kNoError;
  std::string why;  // for the client and the log, with the limit
  bool ok() const { return fault == H2Fault::kNone; }
};

struct H2Reset {
  uint32_t stream = 0;
  H2Fault fault = H2Fault::kNone;
  H2Error error = H2Error::kEnhanceYourCalm;  // for the client
};

// Times are nanoseconds of the steady clock.  Thread-compatible.
class H2Guard {
 public:
  // `limits`, `totals`, `group`: Borrowed; must outlive the guard.
  H2Guard(const H2Limits& limits, H2Totals& totals, H2Group& group, int64_t now_ns);
  ~H2Guard();
  H2Guard(const H2Guard&) = delete;
  H2Guard& operator=(const H2Guard&) = delete;

  // Takes bytes from the client.  The connection must end if the verdict is not ok.
  H2Verdict OnClient(std::string_view in, int64_t now_ns);
  // How many of the client's bytes, since the connection began, may go to gRPC.  They end between
  // frames and outside a header block.
  uint64_t released_bytes() const { return released_bytes_; }
  // Whether the client's preface and SETTINGS are complete.  Nothing is released before that.
  bool established() const { return established_; }

  // Takes bytes from gRPC; all of them go on to the client.
  H2Verdict OnServer(std::string_view in, int64_t now_ns);
  // Whether a frame of our own may follow the bytes that gRPC has sent.
  bool server_between_frames() const { return server_.between_frames() && !server_in_block_; }

  // Checks time limits; call about every second.
  H2Verdict OnTime(int64_t now_ns);
  // Reading was paused for a reason of our own: incomplete frames and requests get their full time
  // again.
  void OnResume(int64_t now_ns);

  // Streams to reset in both directions since the last call, after the bytes released by now.
  std::vector<H2Reset> TakeResets();
  // For when all connections together are over a limit: resets the request with most bytes, or the
  // newest, incomplete requests first.  False without a request.  Counts as the client's reset.
  bool ShedLargest();
  bool ShedNewest();

  // Leaves the totals, because the connection ends.
  void Drop();

  // How long to pause reading from the client after the last OnClient; mostly 0.
  int64_t pause_ns() const { return std::max(streams_.debt_ns(), opening_pause_ns_); }
  // Whether the group has opened too many requests: reads are short then, because all requests of a
  // read are opened.
  bool group_in_debt() const { return group_.openings.debt_ns() > 0; }
  // Whether gRPC has no work for the client: no request is complete or answered.
  bool waits_for_client() const;
  uint32_t last_stream() const { return last_stream_; }
  uint32_t num_streams() const { return static_cast<uint32_t>(open_.size()); }
  // Requests that are neither complete nor answered.
  uint32_t num_unfinished() const;
  uint64_t num_bytes() const { return num_bytes_; }

 private:
  struct Stream {
    uint32_t id = 0;
    bool client_ended = false;
    bool answered = false;  // gRPC has sent something
    bool server_ended = false;
    uint64_t num_bytes = 0;
    int64_t opened_ns = 0;
    int64_t credit = 0;            // of H2Windows
    int64_t blocked_since_ns = 0;  // the client's window is closed; 0: it is open

    bool unfinished() const { return !client_ended && !answered; }
  };
  using Streams = std::vector<Stream>;  // by id; new ids are higher

  H2Verdict OnClientFrame(const H2Frame& frame, int64_t now_ns);
  H2Verdict OnHeaders(const H2Frame& frame, int64_t now_ns);
  H2Verdict OnContinuation(const H2Frame& frame);
  H2Verdict OnData(const H2Frame& frame, int64_t now_ns);
  H2Verdict OnClientFrameEnd(const H2Frame& frame, int64_t now_ns);
  H2Verdict OnServerFrame(const H2Frame& frame, int64_t now_ns);
  void OnBlockEnd(int64_t now_ns);
  // Whether the client takes too long to complete the request or to read its answer.
  bool TooSlow(Stream& stream, int64_t now_ns) const;
  // A request was opened, or answered for the first time.
  void TakeOpening(int64_t now_ns);
  void ReturnOpening();
  H2Verdict Control(double cost, int64_t now_ns);
  H2Verdict CountReset(int64_t now_ns);

  Streams::iterator Find(uint32_t id);
  void EndStream(Streams::iterator stream);
  void Close(Streams::iterator stream);
  void Reset(Streams::iterator stream, H2Fault fault, H2Error error = H2Error::kEnhanceYourCalm);

  const H2Limits& limits_;
  H2Totals& totals_;
  H2Group& group_;

  H2FrameScanner client_;
  size_t preface_bytes_ = 0;
  bool established_ = false;
  bool knows_limits_ = false;  // has acknowledged the server's SETTINGS
  uint64_t client_bytes_ = 0;
  uint64_t released_bytes_ = 0;
  // The header block that is being read.
  uint32_t block_stream_ = 0;  // 0: none
  bool block_ends_stream_ = false;
  uint32_t block_bytes_ = 0;
  uint32_t block_frames_ = 0;

  H2FrameScanner server_;
  bool server_in_block_ = false;
  H2Windows windows_;

  Streams open_;
  uint32_t last_stream_ = 0;
  uint64_t num_bytes_ = 0;
  std::vector<H2Reset> resets_;
  int64_t opened_ns_;
  int64_t now_ns_;                   // the last OnClient or OnTime
  int64_t incomplete_since_ns_ = 0;  // 0: everything received is complete
  int64_t idle_since_ns_;

  TokenBucket streams_;
  uint32_t own_openings_;       // left
  uint64_t owed_openings_ = 0;  // taken from the group
  int64_t opening_pause_ns_ = 0;
  TokenBucket client_resets_;
  TokenBucket control_;
  int resets_in_debt_ = 0;
  bool shed_too_often_ = false;
};

}  // namespace tandem

// What clients and gRPC send over one connection, before the guard that stands between them.  The
// input is records of an operation, a length and so many bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "services/common/base/check.h"
#include "services/common/rpc/edge/h2_guard.h"

namespace {

using namespace tandem;

// Small, so that short inputs go over them.
constexpr H2Limits kLimits = {.max_streams = 4,
                              .max_header_bytes = 64,
                              .max_continuations = 2,
                              .max_request_bytes = 300,
                              .max_requests_bytes = 500,
                              .stream_burst = 20,
                              .streams_per_second = 10,
                              .reset_burst = 5,
                              .resets_per_second = 1,
                              .control_burst = 40,
                              .control_per_second = 4,
                              .own_openings = 2,
                              .opening_burst = 3,
                              .openings_per_second = 1,
                              .max_total_streams = 4,
                              .max_total_bytes = 600,
                              .total_reset_burst = 8,
                              .total_resets_per_second = 2};

// The longest that a connection may have the edge hold: a header block, a frame and the preface.
constexpr uint64_t kMostHeld = kLimits.max_header_bytes + kH2MaxFrameBytes + kH2Preface.size() +
                               (kLimits.max_continuations + 2) * kH2FrameHeaderBytes;

struct End {
  H2Totals totals{kLimits};
  H2Group group{kLimits};
  H2Guard guard{kLimits, totals, group, 1};
  H2Fault fault = H2Fault::kNone;

  void Client(std::string_view in, int64_t now_ns) {
    if (!in.empty() && fault == H2Fault::kNone) fault = guard.OnClient(in, now_ns).fault;
  }
  void Check(uint64_t received) {
    TANDEM_CHECK(guard.released_bytes() <= received);
    if (fault == H2Fault::kNone) TANDEM_CHECK(received - guard.released_bytes() <= kMostHeld);
    TANDEM_CHECK(guard.established() || guard.released_bytes() == 0);
    TANDEM_CHECK(guard.num_streams() <= kLimits.max_streams);
    TANDEM_CHECK(guard.num_unfinished() <= guard.num_streams());
    TANDEM_CHECK(totals.num_streams == guard.num_streams());
    TANDEM_CHECK(totals.num_bytes == guard.num_bytes());
    TANDEM_CHECK(guard.num_bytes() <= kLimits.max_requests_bytes);
    for (const H2Reset& reset : guard.TakeResets()) {
      TANDEM_CHECK(reset.stream <= guard.last_stream() && reset.fault != H2Fault::kNone);
    }
  }
};

// What was released ends between frames.
void CheckReleased(std::string_view released) {
  if (released.empty()) return;
  TANDEM_CHECK(released.substr(0, kH2Preface.size()) == kH2Preface);
  released.remove_prefix(kH2Preface.size());
  H2FrameScanner scanner;
  bool in_block = false;
  while (!released.empty()) {
    const H2FrameScanner::Step step = scanner.Next(released);
    TANDEM_CHECK(step.used > 0 && step.used <= released.size());
    released.remove_prefix(step.used);
    if (!step.header) continue;
    const H2FrameType type = scanner.frame().type;
    TANDEM_CHECK(in_block == (type == H2FrameType::kContinuation));
    if (type == H2FrameType::kHeaders || in_block) in_block = !scanner.frame().has(kH2EndHeaders);
  }
  TANDEM_CHECK(scanner.between_frames() && !in_block);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view input(reinterpret_cast<const char*>(data), size);
  End whole, pieces;  // the same bytes, as they come and one by one
  std::string sent;
  int64_t now_ns = 1;
  while (input.size() >= 2) {
    const int operation = static_cast<uint8_t>(input[0]) % 6;
    const size_t length = std::min<size_t>(static_cast<uint8_t>(input[1]), input.size() - 2);
    const std::string_view bytes = input.substr(2, length);
    input.remove_prefix(2 + length);
    switch (operation) {
      case 0:
      case 1:
        sent += operation == 0 ? bytes : std::string(kH2Preface) + std::string(bytes);
        for (End* end : {&whole, &pieces}) {
          const std::string_view in = std::string_view(sent).substr(
              sent.size() - bytes.size() - (operation == 0 ? 0 : kH2Preface.size()));
          if (end == &whole) {
            end->Client(in, now_ns);
          } else {
            for (size_t i = 0; i < in.size(); ++i) end->Client(in.substr(i, 1), now_ns);
          }
        }
        break;
      case 2:
        for (End* end : {&whole, &pieces}) {
          if (end->fault == H2Fault::kNone) end->fault = end->guard.OnServer(bytes, now_ns).fault;
        }
        break;
      case 3:
        now_ns += static_cast<int64_t>(length) * 500'000'000;
        for (End* end : {&whole, &pieces}) {
          if (end->fault == H2Fault::kNone) end->fault = end->guard.OnTime(now_ns).fault;
        }
        break;
      case 4:
        for (End* end : {&whole, &pieces}) end->guard.ShedLargest();
        break;
      default:
        for (End* end : {&whole, &pieces}) end->guard.ShedNewest();
        break;
    }
    TANDEM_CHECK(whole.fault == pieces.fault);
    for (End* end : {&whole, &pieces}) end->Check(sent.size());
    if (whole.fault != H2Fault::kNone) break;
    TANDEM_CHECK(whole.guard.released_bytes() == pieces.guard.released_bytes());
    TANDEM_CHECK(whole.guard.num_streams() == pieces.guard.num_streams());
  }
  CheckReleased(std::string_view(sent).substr(0, whole.guard.released_bytes()));
  whole.guard.Drop();
  TANDEM_CHECK(whole.totals.num_streams == 0 && whole.totals.num_bytes == 0);
  return 0;
}

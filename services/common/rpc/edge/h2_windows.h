// HTTP/2's flow-control windows (RFC 9113, section 5.2): how much of its answers a client lets the
// server send.  The client's SETTINGS and WINDOW_UPDATE frames grant bytes, the server's DATA uses
// them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "services/common/rpc/edge/h2_frame.h"

namespace tandem {

// The windows of one connection.  Thread-compatible.
class H2Windows {
 public:
  // A WINDOW_UPDATE that is complete; 0: none.
  struct Grant {
    uint32_t stream = 0;  // 0: the connection
    uint32_t bytes = 0;
  };

  // A frame of the client begins.
  void OnClientFrame() { num_field_bytes_ = 0; }
  // Takes a piece of the payload of the client's `frame`.
  Grant OnClientPayload(const H2Frame& frame, std::string_view piece);
  // The server has sent `bytes` of DATA.
  void OnServerData(uint32_t bytes) { connection_ -= bytes; }

  // Whether the server may send DATA of a stream.  `credit`: bytes granted to the stream less bytes
  // sent, without the initial window.
  bool open(int64_t credit) const { return connection_ > 0 && initial_ + credit > 0; }

 private:
  static constexpr int64_t kDefault = 65535;
  int64_t connection_ = kDefault;
  int64_t initial_ = kDefault;
  std::array<uint8_t, 6> field_ = {};  // the setting, or the increment, that is being read
  size_t num_field_bytes_ = 0;
};

}  // namespace tandem

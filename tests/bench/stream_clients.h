// Clients of many streams at once, which note when each token reaches them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace tandem::gateway {

struct ClientStream {
  std::string request_id;
  std::vector<absl::Time> tokens;  // when each was there
};

// How a stream is asked for, and what one token of it looks like.
struct HttpStreamKind {
  std::string path;
  std::string headers;
  std::string body;
  std::string token;  // once in its bytes for each token
};

// As many as asked for, all begun at once, to their ends, read by one thread.
std::vector<ClientStream> RunHttpStreams(uint16_t port, const HttpStreamKind& kind,
                                         int num_streams);
// The same of Generation.Chat, over one channel.
std::vector<ClientStream> RunGrpcStreams(const std::string& target, int num_tokens,
                                         int num_streams);

}  // namespace tandem::gateway

// One connection: passes bytes between a client's socket and gRPC's, if the guard allows them.
//
//   client <--> [hold: a frame not whole yet] --> [to_grpc] <--> gRPC
//          <--- [to_client]                   <---
//
// If one side does not read, its bytes stay in a buffer and no more are read from the other side.
// A relay holds at most 32 KiB for each direction, and one frame with its header block.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "services/common/base/unique_fd.h"
#include "services/common/rpc/edge/edge_counts.h"
#include "services/common/rpc/edge/h2_guard.h"

namespace tandem {

// Shared by the relays of one edge; outlives them.
struct RelayContext {
  const H2Limits& limits;
  H2Totals& totals;
  EdgeCounts& counts;
  // Opens a connection to gRPC on behalf of `peer`: our end.
  std::function<absl::StatusOr<UniqueFd>(const std::string& peer)> connect;
  std::span<char> scratch;  // for one read
  int64_t next_log_ns = 0;  // ended connections are logged at most once a second
};

// Single-thread.  Sockets do not block.
class Relay {
 public:
  // `group`: of the connection's client.  Borrowed; must outlive this.
  Relay(RelayContext& context, H2Group& group, UniqueFd client, std::string peer, int64_t now_ns);

  // Epoll events that each socket waits for; 0: remove it from epoll.
  uint32_t client_events() const;
  uint32_t grpc_events() const;
  // Handles epoll events.
  void OnClient(uint32_t events, int64_t now_ns);
  void OnGrpc(uint32_t events, int64_t now_ns);
  // Call about every second, and when a pause may be over.
  void OnTime(int64_t now_ns);

  // Sends GOAWAY if that is possible now, and closes.
  void Evict();
  // Resets a request in both directions, the largest or the newest; false without any.
  bool Shed(bool largest);

  bool closed() const { return !client_.valid(); }
  // The lowest rank is evicted first: 0 (it has sent nothing complete) to 3; -1: never.
  int eviction_rank() const;
  int64_t pause_ends_ns() const { return pause_ends_ns_; }  // 0: reads
  int client_fd() const { return client_.get(); }
  int grpc_fd() const { return grpc_.get(); }  // -1: none yet, or gone
  const H2Guard& guard() const { return guard_; }
  const std::string& peer() const { return peer_; }

 private:
  void ReadClient(int64_t now_ns);
  void ReadGrpc(int64_t now_ns);
  bool Forward(std::string_view in);
  void ForwardResets();
  void SendGrpc(std::string_view bytes);
  void SendClient(std::string_view bytes);
  void SendClientResets();
  void SendGoaway(H2Error error, std::string_view why);
  void FinishInput();
  void End(const H2Verdict& verdict, int64_t now_ns);
  void Linger(int64_t now_ns);
  void Close();

  RelayContext& context_;
  UniqueFd client_;
  UniqueFd grpc_;
  const std::string peer_;
  H2Guard guard_;
  uint64_t forwarded_bytes_ = 0;
  std::string hold_;
  std::string to_grpc_;
  std::string to_client_;
  std::string client_resets_;  // wait for the end of gRPC's frame
  bool client_ended_ = false;  // sends no more
  bool connected_ = false;     // gRPC has, or had, its end
  bool server_began_ = false;  // gRPC has sent something
  int64_t pause_ends_ns_ = 0;
  int64_t blocked_since_ns_ = 0;  // the client does not read; 0: it reads
  // Set when only to_client_ is left to send; 0 before.
  int64_t linger_ends_ns_ = 0;
  size_t lingered_bytes_ = 0;
};

}  // namespace tandem

#include "services/common/rpc/edge/grpc_edge.h"

#include <malloc.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <list>
#include <map>
#include <thread>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/synchronization/notification.h"
#include "services/common/base/clock.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"
#include "services/common/rpc/edge/listen_sockets.h"
#include "services/common/rpc/edge/peer_names.h"
#include "services/common/rpc/edge/relay.h"
#include "services/common/rpc/unix_socket.h"

namespace tandem {
namespace {

constexpr uint32_t kListening = EPOLLIN;
constexpr size_t kReadBytes = 32 << 10;
constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kRetryNs = 100'000'000;
constexpr int kAcceptsInARow = 64;
// After so much was held at once, what the allocator keeps is given back.
constexpr uint64_t kTrimBytes = 8 << 20;
constexpr uint32_t kTrimStreams = 500;
constexpr int64_t kTrimIntervalNs = 5 * kSecondNs;

// "10.0.0.7:555" -> "10.0.0.7", "unix:uid=7,pid=8" -> "unix:uid=7".  A client of this machine takes
// whichever loopback address it likes: they are one.
std::string GroupOf(const std::string& peer) {
  if (peer.starts_with("127.") || peer.starts_with("[::1]")) return "loopback";
  return peer.substr(0, peer.find_last_of(peer.starts_with("unix:") ? "," : ":"));
}

}  // namespace

class GrpcEdge::Loop {
 public:
  explicit Loop(const EdgeOptions& options)
      : options_(options),
        totals_(options_.limits),
        context_{.limits = options_.limits,
                 .totals = totals_,
                 .counts = options.counts != nullptr ? *options.counts : own_counts_,
                 .connect = [this](const std::string& peer) { return Connect(peer); },
                 .scratch = scratch_} {}
  ~Loop() { Stop(); }

  absl::Status Open(const std::vector<std::string>& addresses) {
    epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
    wake_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!epoll_.valid() || !wake_.valid()) {
      return absl::ResourceExhaustedError(
          absl::StrFormat("no descriptor for the gRPC edge: %s", std::strerror(errno)));
    }
    for (const std::string& address : addresses) {
      TANDEM_ASSIGN_OR_RETURN(ListenSocket socket, tandem::Listen(address));
      listeners_.push_back({.socket = std::move(socket)});
    }
    for (Listener& listener : listeners_) {
      listener.watch = {.kind = Watch::Kind::kListener, .owner = &listener};
    }
    return absl::OkStatus();
  }

  std::vector<std::string> Targets() const {
    std::vector<std::string> targets;
    for (const Listener& listener : listeners_) targets.push_back(listener.socket.target);
    return targets;
  }

  void Begin(Serve serve) {
    serve_ = std::move(serve);
    WatchFd(wake_.get(), wake_watch_, EPOLLIN);
    thread_ = std::thread([this] { Run(); });
  }

  void StopAccepting() {
    if (!thread_.joinable() || accepting_ended_.HasBeenNotified()) return;
    stop_accepting_ = true;
    Wake();
    accepting_ended_.WaitForNotification();
  }

  void Stop() {
    if (thread_.joinable()) {
      stop_ = true;
      Wake();
      thread_.join();
    }
    CloseListeners();
  }

 private:
  // What an epoll event is about.
  struct Watch {
    enum class Kind { kWake, kListener, kClient, kGrpc } kind = Kind::kWake;
    void* owner = nullptr;
    uint32_t events = 0;  // registered; 0: not in the set
  };

  // Connections of one client's address, or one user.
  struct Group {
    explicit Group(const H2Limits& limits) : shared(limits) {}
    size_t num_members = 0;
    uint64_t held = 0;  // while Relieve looks
    H2Group shared;
  };

  // A connection with its two places in the epoll set.
  struct Member {
    Member(RelayContext& context, Accepted accepted, Group& peers, bool is_local, int64_t now)
        : relay(context, peers.shared, std::move(accepted.fd), std::move(accepted.peer), now),
          group(peers),
          local(is_local) {
      client.owner = grpc.owner = this;
      ++group.num_members;
    }
    ~Member() { --group.num_members; }
    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;

    Relay relay;
    Group& group;
    const bool local;  // came by a unix socket
    Watch client{.kind = Watch::Kind::kClient};
    Watch grpc{.kind = Watch::Kind::kGrpc};
    int grpc_fd = -1;  // in the set
  };

  struct Listener {
    ListenSocket socket;
    Watch watch;
    int64_t waits_until_ns = 0;  // accepts nothing before that; 0: accepts
    bool says_so = true;         // the log does, once for each time of waiting
  };
  using Members = std::list<Member>;

  void Wake() {
    const uint64_t one = 1;
    (void)!::write(wake_.get(), &one, sizeof(one));
  }

  void Run() {
    std::array<epoll_event, 64> events;
    int64_t next_sweep_ns = NowNanos() + kSecondNs;
    while (!stop_) {
      const int64_t now_ns = NowNanos();
      if (stop_accepting_ && !accepting_ended_.HasBeenNotified()) {
        CloseListeners();
        accepting_ended_.Notify();
      }
      WatchListeners(now_ns);
      const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), Patience(now_ns));
      const int64_t then_ns = NowNanos();
      for (int i = 0; i < count; ++i) {
        OnEvent(*static_cast<Watch*>(events[static_cast<size_t>(i)].data.ptr),
                events[static_cast<size_t>(i)].events, then_ns);
      }
      if (then_ns >= next_sweep_ns) {
        next_sweep_ns = then_ns + kSecondNs;
        for (Member& member : members_) member.relay.OnTime(then_ns);
        for (Member& member : members_) Settle(member);
        Trim(then_ns);
      } else if (next_resume_ns_ != 0 && then_ns >= next_resume_ns_) {
        Resume(then_ns);
      }
      RemoveClosed();
    }
    members_.clear();
    context_.counts.connections = 0;
    if (!accepting_ended_.HasBeenNotified()) accepting_ended_.Notify();
  }

  // Milliseconds until there is something to do without an event.
  int Patience(int64_t now_ns) const {
    int64_t until = members_.empty() && !WantsTrim() ? kSecondNs * 3600 : kSecondNs;
    if (next_resume_ns_ != 0) until = std::min(until, next_resume_ns_ - now_ns);
    for (const Listener& listener : listeners_) {
      if (listener.waits_until_ns != 0) until = std::min(until, listener.waits_until_ns - now_ns);
    }
    return static_cast<int>(std::max<int64_t>(0, until + 999'999) / 1'000'000);
  }

  void OnEvent(Watch& watch, uint32_t events, int64_t now_ns) {
    switch (watch.kind) {
      case Watch::Kind::kWake: {
        uint64_t count = 0;
        (void)!::read(wake_.get(), &count, sizeof(count));
        return;
      }
      case Watch::Kind::kListener:
        return AcceptSome(*static_cast<Listener*>(watch.owner), now_ns);
      case Watch::Kind::kClient:
      case Watch::Kind::kGrpc: {
        auto& member = *static_cast<Member*>(watch.owner);
        if (member.relay.closed()) return;  // by an event before this one
        if (watch.kind == Watch::Kind::kClient) {
          member.relay.OnClient(events, now_ns);
        } else if (member.relay.grpc_fd() >= 0) {
          member.relay.OnGrpc(events, now_ns);
        }
        Settle(member);
        Relieve();
        return;
      }
    }
  }

  // Has epoll wait for what the relay wants now.
  void Settle(Member& member) {
    Relay& relay = member.relay;
    if (relay.closed()) {
      any_closed_ = true;
      return;  // its descriptors are, too, and so out of the set
    }
    if (member.grpc_fd != relay.grpc_fd()) {
      member.grpc_fd = relay.grpc_fd();
      member.grpc.events = 0;
    }
    WatchFd(relay.client_fd(), member.client, relay.client_events());
    if (member.grpc_fd >= 0) WatchFd(member.grpc_fd, member.grpc, relay.grpc_events());
    const int64_t resume_ns = relay.pause_ends_ns();
    if (resume_ns != 0 && (next_resume_ns_ == 0 || resume_ns < next_resume_ns_)) {
      next_resume_ns_ = resume_ns;
    }
  }

  void WatchFd(int fd, Watch& watch, uint32_t events) {
    if (watch.events == events) return;
    epoll_event event{};
    event.events = events;
    event.data.ptr = &watch;
    const int operation = events == 0         ? EPOLL_CTL_DEL
                          : watch.events == 0 ? EPOLL_CTL_ADD
                                              : EPOLL_CTL_MOD;
    if (::epoll_ctl(epoll_.get(), operation, fd, &event) != 0) {
      LogError("gRPC edge: epoll_ctl failed", {{"error", std::strerror(errno)}});
    }
    watch.events = events;
  }

  void Resume(int64_t now_ns) {
    next_resume_ns_ = 0;
    for (Member& member : members_) {
      const int64_t end_ns = member.relay.pause_ends_ns();
      if (end_ns != 0 && now_ns >= end_ns) member.relay.OnTime(now_ns);
      if (end_ns != 0) Settle(member);
    }
  }

  // While all connections together are over a limit, whoever holds most of the greatest group gives
  // something up.
  void Relieve() {
    peak_bytes_ = std::max(peak_bytes_, totals_.num_bytes);
    peak_streams_ = std::max(peak_streams_, totals_.num_streams);
    while (true) {
      const bool bytes = totals_.num_bytes > options_.limits.max_total_bytes;
      if (!bytes && totals_.num_streams <= options_.limits.max_total_streams) return;
      Member* most = MostOf([bytes](const H2Guard& guard) -> uint64_t {
        return bytes ? guard.num_bytes() : guard.num_unfinished();
      });
      if (most == nullptr) {
        most = MostOf([](const H2Guard& guard) -> uint64_t { return guard.num_streams(); });
      }
      if (most == nullptr || !most->relay.Shed(/*largest=*/bytes)) return;
      Settle(*most);
    }
  }

  // Of the group that holds most, the connection that does; null where all hold 0.
  template <typename Held>
  Member* MostOf(const Held& held) {
    for (auto& [name, group] : groups_) group.held = 0;
    for (const Member& member : members_) member.group.held += held(member.relay.guard());
    Member* most = nullptr;
    const auto weight = [&held](const Member& member) {
      return std::pair(member.group.held, held(member.relay.guard()));
    };
    for (Member& member : members_) {
      if (held(member.relay.guard()) == 0) continue;
      if (most == nullptr || weight(member) > weight(*most)) most = &member;
    }
    return most;
  }

  // Unix sockets have all places, ports three quarters: whoever fills a port does not keep the
  // operator out.
  size_t PlacesOf(const Listener& listener) const {
    const size_t all = options_.max_connections;
    if (listener.socket.local || all < 2) return all;
    return all - std::max<size_t>(all / 4, 1);
  }
  bool full(const Listener& listener) const {
    return members_.size() >= options_.max_connections || ports_are_full(listener);
  }
  bool ports_are_full(const Listener& listener) const {
    return !listener.socket.local && num_of_ports() >= PlacesOf(listener);
  }
  size_t num_of_ports() const {
    return static_cast<size_t>(std::count_if(members_.begin(), members_.end(),
                                             [](const Member& member) { return !member.local; }));
  }

  // Listens where that can lead to something.
  void WatchListeners(int64_t now_ns) {
    for (Listener& listener : listeners_) {
      if (listener.waits_until_ns != 0 && now_ns >= listener.waits_until_ns) {
        listener.waits_until_ns = 0;
      }
      WatchFd(listener.socket.fd.get(), listener.watch,
              listener.waits_until_ns == 0 ? kListening : 0);
    }
  }

  // Accepts nothing for a moment.  Connections wait in the kernel.
  void Wait(Listener& listener, int64_t now_ns, const char* why) {
    listener.waits_until_ns = now_ns + kRetryNs;
    if (!std::exchange(listener.says_so, false)) return;
    LogWarning(
        "gRPC connections wait",
        {{"target", listener.socket.target}, {"why", why}, {"connections", members_.size()}});
  }

  void AcceptSome(Listener& listener, int64_t now_ns) {
    for (int i = 0; i < kAcceptsInARow; ++i) {
      if (full(listener) && !IsAwaited(listener.socket)) return;
      if (full(listener) && !Evict(/*of_ports=*/ports_are_full(listener))) {
        return Wait(listener, now_ns, "all places are taken by requests");
      }
      Accepted accepted = Accept(listener.socket);
      if (accepted.error == ECONNABORTED || accepted.error == EINTR) continue;
      if (IsShortage(accepted.error)) {
        Evict(/*of_ports=*/false);
        return Wait(listener, now_ns, std::strerror(accepted.error));
      }
      if (accepted.error != 0) return;
      listener.says_so = true;
      if (accepted.foreign) {
        ++context_.counts.foreign;
        if (now_ns >= context_.next_log_ns) {
          context_.next_log_ns = now_ns + kSecondNs;
          LogWarning("gRPC connection of another user refused", {{"peer", accepted.peer}});
        }
        continue;
      }
      Group& group = groups_.try_emplace(GroupOf(accepted.peer), options_.limits).first->second;
      members_.emplace_back(context_, std::move(accepted), group, listener.socket.local, now_ns);
      context_.counts.connections = members_.size();
      Settle(members_.back());
    }
  }

  // Makes room for one connection, by one of a port's where it must; false if all work for their
  // clients.
  bool Evict(bool of_ports) {
    auto victim = members_.end();
    // The greatest group first, then the lowest rank, then the oldest.
    for (auto member = members_.begin(); member != members_.end(); ++member) {
      const int rank = member->relay.eviction_rank();
      if (rank < 0 || (of_ports && member->local)) continue;
      const auto order = [](const Member& each, int its_rank) {
        return std::pair(each.group.num_members, -its_rank);
      };
      if (victim == members_.end() ||
          order(*member, rank) > order(*victim, victim->relay.eviction_rank())) {
        victim = member;
      }
    }
    if (victim == members_.end()) return false;
    victim->relay.Evict();
    // Events of this round may name it still.
    evicted_.splice(evicted_.end(), members_, victim);
    any_closed_ = true;
    return true;
  }

  // A pair of sockets: one for gRPC, the other ours.
  absl::StatusOr<UniqueFd> Connect(const std::string& peer) {
    if (stop_accepting_) return absl::UnavailableError("the server ends");
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
      return absl::ResourceExhaustedError(std::strerror(errno));
    }
    UniqueFd ours(ends[0]);
    NamePeer(ends[1], peer);
    serve_(ends[1]);
    return ours;
  }

  void RemoveClosed() {
    if (!std::exchange(any_closed_, false)) return;
    evicted_.clear();
    members_.remove_if([](const Member& member) { return member.relay.closed(); });
    // A group whose client has gone is kept until it could open as many requests as a new one.
    const int64_t now_ns = NowNanos();
    std::erase_if(groups_, [now_ns](const auto& group) {
      return group.second.num_members == 0 && group.second.shared.openings.full(now_ns);
    });
    context_.counts.connections = members_.size();
  }

  void CloseListeners() {
    for (Listener& listener : listeners_) {
      if (const auto path = UnixSocketPath(listener.socket.target)) ::unlink(path->c_str());
    }
    listeners_.clear();
  }

  // After a flood the allocator keeps its memory for another one: gives it back once it is over.
  void Trim(int64_t now_ns) {
    const bool over =
        totals_.num_bytes <= kTrimBytes / 2 && totals_.num_streams <= kTrimStreams / 2;
    if (!WantsTrim() || !over || now_ns - last_trim_ns_ < kTrimIntervalNs) return;
    last_trim_ns_ = now_ns;
    num_faults_trimmed_ = FaultCount();
    peak_bytes_ = 0;
    peak_streams_ = 0;
    ::malloc_trim(0);
  }

  bool WantsTrim() const {
    return peak_bytes_ > kTrimBytes || peak_streams_ > kTrimStreams ||
           FaultCount() != num_faults_trimmed_;
  }

  uint64_t FaultCount() const {
    uint64_t count = 0;
    for (const auto& ended : context_.counts.ended) count += ended;
    for (const auto& reset : context_.counts.resets) count += reset;
    return count;
  }

  const EdgeOptions options_;
  EdgeCounts own_counts_;
  H2Totals totals_;
  std::array<char, kReadBytes> scratch_;
  RelayContext context_;
  Serve serve_;

  UniqueFd epoll_;
  UniqueFd wake_;
  Watch wake_watch_;
  std::list<Listener> listeners_;
  std::map<std::string, Group> groups_;  // by GroupOf
  Members members_;                      // oldest first
  Members evicted_;
  bool any_closed_ = false;
  int64_t next_resume_ns_ = 0;  // 0: nobody pauses

  uint64_t peak_bytes_ = 0;
  uint32_t peak_streams_ = 0;
  uint64_t num_faults_trimmed_ = 0;
  int64_t last_trim_ns_ = 0;

  std::atomic<bool> stop_ = false;
  std::atomic<bool> stop_accepting_ = false;
  absl::Notification accepting_ended_;
  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<GrpcEdge>> GrpcEdge::Listen(
    const EdgeOptions& options, const std::vector<std::string>& addresses) {
  auto loop = std::make_unique<Loop>(options);
  TANDEM_RETURN_IF_ERROR(loop->Open(addresses));
  return std::unique_ptr<GrpcEdge>(new GrpcEdge(std::move(loop)));
}

GrpcEdge::GrpcEdge(std::unique_ptr<Loop> loop)
    : loop_(std::move(loop)), targets_(loop_->Targets()) {}
GrpcEdge::~GrpcEdge() = default;
void GrpcEdge::Begin(Serve serve) { loop_->Begin(std::move(serve)); }
void GrpcEdge::StopAccepting() { loop_->StopAccepting(); }
void GrpcEdge::Stop() { loop_->Stop(); }

}  // namespace tandem

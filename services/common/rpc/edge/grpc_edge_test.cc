// A gRPC server behind its edge: what clients of gRPC's own see, and what others can do to it.
#include "services/common/rpc/edge/grpc_edge.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "services/common/base/unique_fd.h"
#include "services/common/rpc/channel.h"
#include "services/common/rpc/edge/peer_names.h"
#include "services/common/rpc/edge/testing/h2_bytes.h"
#include "services/common/rpc/edge/testing/h2_client.h"
#include "services/common/rpc/server.h"
#include "services/common/testing/eventually.h"
#include "services/common/testing/temporary_directory.h"

namespace tandem {
namespace {

using testing::CallHeaders;
using testing::Data;
using testing::Eventually;
using testing::Frame;
using testing::GrpcMessage;
using testing::H2Client;
using ::testing::HasSubstr;
using testing::Headers;
using testing::Preface;
using testing::Rst;
using ::testing::StartsWith;

// "/test/Echo": the message again.  "/test/Peer": who called.  "/test/Pour": megabytes without end.
// "/test/Hang": no answer before Release.
class TestService final : public grpc::CallbackGenericService {
 public:
  void Release() {
    std::set<Call*> calls;
    {
      const absl::MutexLock lock(&mutex_);
      released_ = true;
      calls.swap(hanging_);
    }
    for (Call* call : calls) call->Answer();
  }
  int num_poured() const { return num_poured_; }
  int num_begun() const { return num_begun_; }
  size_t num_hanging() const {
    const absl::MutexLock lock(&mutex_);
    return hanging_.size();
  }

 private:
  class Call final : public grpc::ServerGenericBidiReactor {
   public:
    Call(TestService& service, std::string method, std::string peer)
        : service_(service), method_(std::move(method)), peer_(std::move(peer)) {
      if (method_ == "/test/Pour") {
        Pour();
      } else {
        StartRead(&message_);
      }
    }
    void OnReadDone(bool ok) override {
      if (!ok) return Finish(grpc::Status::OK);
      if (method_ == "/test/Hang" && service_.Hang(this)) return;
      if (method_ == "/test/Peer") {
        const grpc::Slice text(peer_);
        message_ = grpc::ByteBuffer(&text, 1);
      }
      Answer();
    }
    void OnWriteDone(bool ok) override {
      if (!ok) return Finish(grpc::Status::CANCELLED);
      ++service_.num_poured_;
      Pour();
    }
    void OnCancel() override {
      if (service_.LetGo(this)) Finish(grpc::Status::CANCELLED);
    }
    void OnDone() override { delete this; }
    void Answer() { StartWriteAndFinish(&message_, grpc::WriteOptions(), grpc::Status::OK); }

   private:
    void Pour() {
      const grpc::Slice text(std::string(1 << 20, 'p'));
      message_ = grpc::ByteBuffer(&text, 1);
      StartWrite(&message_);
    }

    TestService& service_;
    const std::string method_;
    const std::string peer_;
    grpc::ByteBuffer message_;
  };

  // False once calls are released.
  bool Hang(Call* call) {
    const absl::MutexLock lock(&mutex_);
    if (!released_) hanging_.insert(call);
    return !released_;
  }
  bool LetGo(Call* call) {
    const absl::MutexLock lock(&mutex_);
    return hanging_.erase(call) > 0;
  }

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    ++num_begun_;
    return new Call(*this, context->method(), PeerOfCall(context->peer()));
  }

  mutable absl::Mutex mutex_;
  std::set<Call*> hanging_;
  bool released_ = false;
  std::atomic<int> num_poured_ = 0;
  std::atomic<int> num_begun_ = 0;
};

// A call that is under way.
class Pending {
 public:
  Pending(grpc::GenericStub& stub, const std::string& method, const std::string& payload) {
    const grpc::Slice slice(payload);
    request_ = grpc::ByteBuffer(&slice, 1);
    context_.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(30)));
    stub.UnaryCall(&context_, method, {}, &request_, &response_, [this](grpc::Status status) {
      status_ = std::move(status);
      done_.Notify();
    });
  }
  ~Pending() { Wait(); }
  const grpc::Status& Wait() {
    done_.WaitForNotification();
    return status_;
  }
  bool done() const { return done_.HasBeenNotified(); }
  std::string answer() {
    Wait();
    std::vector<grpc::Slice> slices;
    if (!response_.Dump(&slices).ok()) return "";
    std::string text;
    for (const grpc::Slice& slice : slices) {
      text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
    }
    return text;
  }

 private:
  grpc::ClientContext context_;
  grpc::ByteBuffer request_, response_;
  grpc::Status status_;
  absl::Notification done_;
};

class GrpcEdgeTest : public ::testing::Test {
 protected:
  ~GrpcEdgeTest() override {
    service_.Release();
    server_.reset();
  }

  void Start() {
    options_.counts = &counts_;
    auto server = Server::Start({.listen = {"unix:" + directory_.path() + "/s.sock", "127.0.0.1:0"},
                                 .edge = options_,
                                 .configure =
                                     [this](grpc::ServerBuilder& builder) {
                                       builder.RegisterCallbackGenericService(&service_);
                                     }},
                                {});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    local_ = server_->targets()[0];
    port_ = server_->targets()[1];
  }

  // A channel with a connection of its own.
  static grpc::GenericStub Connect(const std::string& target) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::GenericStub(
        grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments));
  }
  static std::string Ask(const std::string& target, const std::string& method,
                         const std::string& payload) {
    grpc::GenericStub stub = Connect(target);
    Pending call(stub, method, payload);
    return call.Wait().ok() ? call.answer() : "failed: " + call.Wait().error_message();
  }
  uint64_t ended(H2Fault fault) const { return counts_.ended[static_cast<size_t>(fault)]; }
  // A request as it is sent whole.
  static std::string Call(uint32_t stream, const std::string& method) {
    const std::string message = GrpcMessage("x");
    return Headers(stream, false, CallHeaders(method)) +
           Frame(H2FrameType::kData, kH2EndStream, stream, message);
  }

  TemporaryDirectory directory_;
  TestService service_;
  EdgeOptions options_;
  EdgeCounts counts_;
  std::unique_ptr<Server> server_;
  std::string local_, port_;
};

TEST_F(GrpcEdgeTest, CallsPassByTheSocketAndByThePort) {
  Start();
  const std::string text(1'000'000, 't');  // times 20: within max_requests_bytes
  for (const std::string& target : {local_, port_}) {
    grpc::GenericStub stub = Connect(target);
    std::vector<std::unique_ptr<Pending>> calls;
    for (int i = 0; i < 20; ++i) {
      calls.push_back(std::make_unique<Pending>(stub, "/test/Echo", text));
    }
    for (const auto& call : calls) {
      EXPECT_TRUE(call->Wait().ok()) << call->Wait().error_message();
      EXPECT_TRUE(call->answer() == text);
    }
  }
}

TEST_F(GrpcEdgeTest, CallsNameTheirClient) {
  Start();
  EXPECT_THAT(Ask(port_, "/test/Peer", ""), StartsWith("ipv4:127.0.0.1:"));
  EXPECT_THAT(Ask(local_, "/test/Peer", ""), HasSubstr("unix"));
  EXPECT_EQ(PeerOfCall("ipv4:10.0.0.7:1"), "ipv4:10.0.0.7:1");
  EXPECT_EQ(PeerOfCall("fd:99999"), "fd:99999");
}

TEST_F(GrpcEdgeTest, AMessageThatIsTooLongIsRefusedInWords) {
  options_.limits.max_request_bytes = kH2RequestReserve + 1000;
  Start();
  EXPECT_EQ(Ask(port_, "/test/Echo", std::string(1000, 'x')), std::string(1000, 'x'));
  EXPECT_THAT(Ask(port_, "/test/Echo", std::string(1001, 'x')), HasSubstr("1001 vs. 1000"));
}

TEST_F(GrpcEdgeTest, RapidResetEndsItsConnectionAlone) {
  Start();
  grpc::GenericStub stub = Connect(port_);
  Pending hanging(stub, "/test/Hang", "");
  ASSERT_TRUE(Eventually([this] { return service_.num_hanging() == 1; }));
  H2Client attacker(port_);
  ASSERT_TRUE(attacker.Send(Preface()));
  uint32_t stream = 1;
  while (stream < 100'000 &&
         attacker.Send(Headers(stream, false, CallHeaders("/test/Hang")) + Rst(stream))) {
    stream += 2;
  }
  EXPECT_LT(stream, 100'000u);
  EXPECT_TRUE(attacker.AwaitEnd());
  EXPECT_EQ(ended(H2Fault::kResets), 1u);
  EXPECT_FALSE(hanging.done());
  service_.Release();
  EXPECT_TRUE(hanging.Wait().ok()) << hanging.Wait().error_message();
}

TEST_F(GrpcEdgeTest, AHeaderBlockWithoutEndNeverReachesGrpc) {
  Start();
  H2Client attacker(port_);
  const std::string piece = Frame(H2FrameType::kContinuation, 0, 1, std::string(16384, 'h'));
  attacker.Send(Preface() + Frame(H2FrameType::kHeaders, 0, 1, CallHeaders("/test/Echo")));
  for (int i = 0; i < 4; ++i) attacker.Send(piece);
  EXPECT_TRUE(attacker.AwaitEnd());
  EXPECT_THAT(attacker.read(), HasSubstr("a header block of more than 32768 bytes"));
  EXPECT_EQ(ended(H2Fault::kHeaderBytes), 1u);
}

TEST_F(GrpcEdgeTest, RequestsThatNeverEndAreResetInTime) {
  options_.limits.request_timeout = absl::Milliseconds(100);
  Start();
  H2Client attacker(port_);
  attacker.Send(Preface() + Headers(1, false, CallHeaders("/test/Hang")) + Data(1, 3));
  EXPECT_TRUE(attacker.Await(H2RstStream(1, H2Error::kEnhanceYourCalm)));
  EXPECT_EQ(counts_.resets[static_cast<size_t>(H2Fault::kSlow)], 1u);
  attacker.Send(Call(3, "/test/Echo"));
  EXPECT_TRUE(attacker.Await(GrpcMessage("x"))) << "the connection goes on";
}

TEST_F(GrpcEdgeTest, ConnectingAgainDoesNotOpenMoreRequests) {
  options_.limits.opening_burst = 100;
  options_.limits.openings_per_second = 0.01;  // as good as none
  Start();
  std::string flood = Preface();
  for (uint32_t stream = 1; stream < 400; stream += 2) {
    flood += Headers(stream, false, CallHeaders("/test/Hang"));
  }
  std::vector<std::unique_ptr<H2Client>> attackers;
  for (int i = 0; i < 10; ++i) {
    attackers.push_back(std::make_unique<H2Client>(port_));
    ASSERT_TRUE(attackers.back()->Send(flood));
  }
  ASSERT_TRUE(Eventually([this] { return service_.num_begun() >= 100; }));
  EXPECT_EQ(Ask(port_, "/test/Echo", "hello"), "hello") << "a new connection has some of its own";
  // A read may exceed the limit by its own bytes: 32 KiB once, 2 KiB of each other connection.
  EXPECT_FALSE(Eventually([&] { return service_.num_begun() > 800; }, absl::Seconds(1)))
      << service_.num_begun() << " of 2000 requests";
}

TEST_F(GrpcEdgeTest, RequestsBeyondTheLimitAreRefusedUntilTheClientKnowsIt) {
  options_.limits.max_streams = 4;
  Start();
  H2Client client(port_);
  client.Send(Preface());
  for (uint32_t stream = 1; stream <= 9; stream += 2) client.Send(Call(stream, "/test/Hang"));
  EXPECT_TRUE(client.Await(H2RstStream(9, H2Error::kRefusedStream)));
  client.Send(Frame(H2FrameType::kSettings, kH2Ack, 0) + Call(11, "/test/Hang"));
  EXPECT_TRUE(client.Await("more than 4 requests open on one connection"));
  EXPECT_TRUE(client.AwaitEnd());
}

TEST_F(GrpcEdgeTest, ConnectionsThatSayNothingMakeRoom) {
  options_.max_connections = 8;
  Start();
  std::vector<std::unique_ptr<H2Client>> silent;
  for (int i = 0; i < 50; ++i) silent.push_back(std::make_unique<H2Client>(port_));
  EXPECT_EQ(Ask(port_, "/test/Echo", "hello"), "hello");
  EXPECT_TRUE(silent.front()->AwaitEnd()) << "the oldest goes first";
  EXPECT_GE(counts_.evicted, 44u);
  EXPECT_LE(counts_.connections, 6u) << "a quarter is the unix socket's";
}

TEST_F(GrpcEdgeTest, PortsLeavePlacesToTheSocketAndConnectionsWaitForPlaces) {
  options_.max_connections = 4;
  Start();
  std::vector<std::unique_ptr<H2Client>> busy;
  for (int i = 0; i < 3; ++i) {
    busy.push_back(std::make_unique<H2Client>(port_));
    busy.back()->Send(Preface() + Call(1, "/test/Hang"));
  }
  ASSERT_TRUE(Eventually([this] { return service_.num_hanging() == 3; }));
  grpc::GenericStub late = Connect(port_);
  Pending waits(late, "/test/Echo", "late");
  H2Client idle(local_);  // its place is of no use to the port
  idle.Send(Preface() + Call(1, "/test/Peer"));
  EXPECT_TRUE(idle.Await("unix:"));
  absl::SleepFor(absl::Milliseconds(250));  // the edge looks again every 100 ms
  EXPECT_FALSE(waits.done());
  EXPECT_EQ(counts_.evicted, 0u) << "all work for their clients";
  // Places that are no longer used for requests become free, though no client leaves.
  service_.Release();
  EXPECT_EQ(waits.answer(), "late") << waits.Wait().error_message();
  EXPECT_EQ(counts_.evicted, 1u);
}

TEST_F(GrpcEdgeTest, ConnectionsWaitForDescriptors) {
  Start();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const UniqueFd lowest(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  rlimit few = before;
  few.rlim_cur = static_cast<rlim_t>(lowest.get()) + 20;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<UniqueFd> taken;
  while (true) {
    UniqueFd fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) break;
    taken.push_back(std::move(fd));
  }
  taken.pop_back();  // for the client: none is left for the server
  H2Client client(port_);
  client.Send(Preface() + Call(1, "/test/Echo"));
  EXPECT_FALSE(client.Await(GrpcMessage("x"), absl::Milliseconds(250)));
  taken.clear();
  EXPECT_TRUE(client.Await(GrpcMessage("x")));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST_F(GrpcEdgeTest, AReaderThatStandsStillHoldsBackItsAnswerAndEnds) {
  options_.limits.blocked_timeout = absl::Milliseconds(1500);
  Start();
  H2Client reader(port_);
  // Windows of 1 GB: HTTP/2 does not hold the server back, the socket has to.
  const std::string window("\x3f\xff\xff\xff", 4);
  reader.Send(Preface() + Frame(H2FrameType::kSettings, 0, 0, std::string("\0\x04", 2) + window) +
              Frame(H2FrameType::kWindowUpdate, 0, 0, window) + Call(1, "/test/Pour"));
  ASSERT_TRUE(Eventually([this] { return service_.num_poured() > 0; }));
  EXPECT_TRUE(Eventually([this] { return ended(H2Fault::kSlow) == 1; }));
  EXPECT_LT(service_.num_poured(), 32) << "megabytes, mostly the kernel's";
  EXPECT_TRUE(Eventually([this] { return counts_.connections == 0; }));
  EXPECT_EQ(Ask(port_, "/test/Echo", "next"), "next");
}

TEST_F(GrpcEdgeTest, AHalfClosedConnectionEnds) {
  Start();
  for (const std::string& sent : {std::string(), Preface().substr(0, 10), Preface(),
                                  Preface() + Headers(1, false, CallHeaders("/test/Hang")),
                                  Preface() + Call(1, "/test/Pour")}) {
    H2Client client(port_);
    client.Send(sent);
    client.HalfClose();
    EXPECT_TRUE(client.AwaitEnd()) << sent.size();
  }
  EXPECT_TRUE(Eventually([this] { return counts_.connections == 0; }));
}

TEST_F(GrpcEdgeTest, OtherUsersAreRefusedAtTheSocket) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be two users";
  Start();
  const std::string path = directory_.path() + "/s.sock";
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  // Were the modes wrong, the peer's user would still be asked for.
  std::filesystem::permissions(directory_.path(), std::filesystem::perms(0755));
  ASSERT_EQ(::chmod(path.c_str(), 0666), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(2);
    H2Client stranger(local_);
    stranger.Send(Preface() + Call(1, "/test/Echo"));
    ::_exit(stranger.AwaitEnd() && stranger.read().empty() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(counts_.foreign, 1u);
}

TEST_F(GrpcEdgeTest, ShutdownLetsCallsEndAndTellsTheClient) {
  Start();
  grpc::GenericStub stub = Connect(port_);
  Pending ends(stub, "/test/Hang", "last");
  H2Client hangs(local_);
  hangs.Send(Preface() + Headers(1, false, CallHeaders("/test/Hang")));
  ASSERT_TRUE(
      Eventually([this] { return service_.num_hanging() == 1 && counts_.connections == 2; }));
  std::thread ending([this] { server_->Shutdown(absl::Seconds(1)); });
  // The path is free as soon as nothing is accepted any more.
  EXPECT_TRUE(
      Eventually([this] { return !std::filesystem::exists(directory_.path() + "/s.sock"); }));
  service_.Release();
  EXPECT_EQ(ends.answer(), "last") << ends.Wait().error_message();
  ending.join();
  server_.reset();
  EXPECT_TRUE(hangs.AwaitEnd());
  EXPECT_EQ(counts_.connections, 0u);
}

}  // namespace
}  // namespace tandem

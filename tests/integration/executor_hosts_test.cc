// The executor with workers on other hosts: over TCP with mutual TLS, by their own loader.
#include <netinet/in.h>
#include <sys/socket.h>

#include <csignal>

#include "services/common/base/unique_fd.h"
#include "services/common/rpc/testing/certificates.h"
#include "services/common/testing/paths.h"
#include "tests/integration/executor_fixture.h"

namespace tandem::gateway {
namespace {

using ::testing::AllOf;
using testing::CertificateAuthority;
using ::testing::HasSubstr;
using testing::StatusIs;

// A port of loopback that nobody has.
std::string FreeAddress() {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t length = sizeof(address);
  EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  return "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
}

class ExecutorHostsTest : public ExecutorTest {
 protected:
  void SetUp() override {
    StartLoader();
    own_loader_ = std::make_unique<InProcessLoader>(Socket("loader_b"), SourcePath("models/demo"));
  }

  std::vector<std::string> TlsArguments(const TlsFiles& files) const {
    return {"--tls-cert", files.certificate, "--tls-key", files.key, "--tls-ca", files.ca};
  }
  // A worker as on another host; returns its --worker target.
  std::string StartRemote(const std::string& name, const TlsFiles& files,
                          std::vector<std::string> flags) {
    const std::string address = FreeAddress();
    for (const std::string& argument : TlsArguments(files)) flags.push_back(argument);
    StartWorker(name, address, flags);
    return "tls://" + address;
  }
  std::vector<std::string> WithOwnLoader() const { return {"--loader", own_loader_->target()}; }

  ExecutorOptions HostOptions(const std::vector<std::string>& local,
                              const std::vector<std::string>& remote) {
    ExecutorOptions options = Options(local, NpuPolicy::kOff);
    options.worker_targets.insert(options.worker_targets.end(), remote.begin(), remote.end());
    options.tls = gateway_;
    options.policy.num_gpus = 0;
    return options;
  }
  // What Start says when it does not get the workers it needs.
  absl::Status Refused(ExecutorOptions options) {
    options.worker_wait = absl::Milliseconds(1500);
    const auto executor = Executor::Start(options, nullptr);
    EXPECT_FALSE(executor.ok());
    return executor.status();
  }

  std::unique_ptr<InProcessLoader> own_loader_;
  const CertificateAuthority ca_{directory_.path(), "ca"};
  const TlsFiles gateway_ = ca_.Issue("gateway", "DNS:gateway.example");
  const TlsFiles host_ = ca_.Issue("host", "IP:127.0.0.1");
};

TEST_F(ExecutorHostsTest, LayersOverHostsGiveTheSameTokensAndPooledSums) {
  StartWorker("gpu0");
  StartWorker("npu0");
  std::vector<std::string> flags = WithOwnLoader();
  flags.insert(flags.end(), {"--tls-allow", "gateway.example"});
  const std::string remote = StartRemote("gpu1", host_, flags);
  std::vector<uint32_t> expected;
  std::vector<float> expected_sum;
  {
    const auto alone = MustStart(Options({"gpu0"}, NpuPolicy::kOff));
    ASSERT_NE(alone, nullptr);
    ASSERT_OK_AND_ASSIGN(expected, Greedy(*alone, prompt_, 12));
    ASSERT_OK_AND_ASSIGN(expected_sum, Pool(*alone, prompt_));
  }
  {
    const auto split = MustStart(HostOptions({"gpu0"}, {remote}));
    ASSERT_NE(split, nullptr);
    ASSERT_EQ(split->plan().segments.size(), 2u);
    EXPECT_THAT(split->placement(), HasSubstr("gpu1"));
    ASSERT_OK_AND_ASSIGN(const auto tokens, Greedy(*split, prompt_, 12));
    EXPECT_EQ(tokens, expected);
    // What docs/hosts.md says a step costs, and framing.
    v1::GetStatusResponse status;
    split->FillStatus(status);
    EXPECT_EQ(status.workers(0).transport(), "shared memory");
    EXPECT_EQ(status.workers(0).sent_bytes(), 0u);
    EXPECT_EQ(status.workers(1).transport(), "mutual TLS");
    EXPECT_EQ(status.workers(1).target(), remote);
    const uint64_t rows = prompt_.size() + 11;
    const uint64_t residual = rows * split->config().hidden_dim * sizeof(float);
    const uint64_t steps = 12 * (sizeof(StepHeader) + sizeof(SequenceEntry) + sizeof(OutputEntry) +
                                 2 * 2 * sizeof(uint32_t)) +
                           rows * sizeof(RowEntry);
    EXPECT_GE(status.workers(1).sent_bytes(), residual + steps - 12 * 2 * sizeof(uint32_t) * 2);
    EXPECT_LE(status.workers(1).sent_bytes(), residual + steps + 12 * 60);
    const uint64_t answers = 12 * (16 + sizeof(Candidate) + sizeof(uint32_t));
    EXPECT_GE(status.workers(1).received_bytes(), answers);
    EXPECT_LE(status.workers(1).received_bytes(), answers + 12 * 120);
    ASSERT_OK_AND_ASSIGN(const auto sum, Pool(*split, prompt_));
    EXPECT_EQ(sum, expected_sum);
  }
  {
    ExecutorOptions options = HostOptions({"gpu0", "npu0"}, {remote});
    options.policy.npu = NpuPolicy::kRequire;
    const auto hybrid = MustStart(options);
    ASSERT_NE(hybrid, nullptr);
    EXPECT_EQ(hybrid->plan().segments.size(), hybrid->config().num_layers + 2);
    ASSERT_OK_AND_ASSIGN(const auto tokens, Greedy(*hybrid, prompt_, 12));
    EXPECT_EQ(tokens, expected);
    ASSERT_OK_AND_ASSIGN(const auto sum, Pool(*hybrid, prompt_));
    EXPECT_EQ(sum, expected_sum);
  }
  ExecutorOptions options = HostOptions({"gpu0"}, {remote});
  const uint32_t last = 11;
  options.policy.layers = {{"gpu1", 0, 0}, {"gpu0", 1, last - 1}, {"gpu1", last, last}};
  const auto twice = MustStart(options);
  ASSERT_NE(twice, nullptr);
  ASSERT_EQ(twice->config().num_layers, last + 1);
  EXPECT_EQ(twice->plan().segments.size(), 3u);
  ASSERT_OK_AND_ASSIGN(const auto tokens, Greedy(*twice, prompt_, 12));
  EXPECT_EQ(tokens, expected);
  ASSERT_OK_AND_ASSIGN(const auto sum, Pool(*twice, prompt_));
  EXPECT_EQ(sum, expected_sum);
}

TEST_F(ExecutorHostsTest, EveryLogitComesBackOverTheNetwork) {
  const std::string remote = StartRemote("gpu1", host_, WithOwnLoader());
  const auto executor = MustStart(HostOptions({}, {remote}));
  ASSERT_NE(executor, nullptr);
  testing::StepBuilder builder(executor->limits());
  builder.Begin();
  const uint32_t first = builder.AddRows(builder.AddSequence(), prompt_);
  builder.AddOutput(first + 6, 17);
  builder.AddOutput(first + 2);
  builder.set_num_candidates(5);
  builder.set_want_logits(true);
  StepBatch batch = builder.batch();
  batch.header.step_id = 77;
  WriteStep(batch, executor->StepArea(0));
  ASSERT_OK(RunStep(*executor, 77));
  for (uint32_t o = 0; o < 2; ++o) {
    const OutputResult& result = executor->Output(0, o);
    ASSERT_EQ(result.num_candidates, 5u);
    for (uint32_t c = 0; c < 5; ++c) {
      const Candidate& candidate = result.candidates[c];
      EXPECT_EQ(executor->Logits(0, o)[candidate.token], candidate.logit);
    }
  }
  EXPECT_EQ(executor->Logits(0, 0)[17], executor->Output(0, 0).target_logit);
}

TEST_F(ExecutorHostsTest, StepsAreQueuedOverTheNetworkToo) {
  const std::string remote = StartRemote("gpu1", host_, WithOwnLoader());
  const auto executor = MustStart(HostOptions({}, {remote}));
  ASSERT_NE(executor, nullptr);
  ASSERT_EQ(executor->depth(), 2u);
  ASSERT_OK_AND_ASSIGN(const auto expected, Greedy(*executor, prompt_, 9));
  ASSERT_OK_AND_ASSIGN(const auto queued, QueuedGreedy(*executor, prompt_, 9));
  EXPECT_EQ(queued, expected);
}

TEST_F(ExecutorHostsTest, AHostThatIsLostAndBackGoesOn) {
  StartWorker("gpu0");
  const std::string remote = StartRemote("gpu1", host_, WithOwnLoader());
  ExecutorOptions options = HostOptions({"gpu0"}, {remote});
  options.policy.layers = {{"gpu0", 0, 5}, {"gpu1", 6, 11}};
  options.segment_deadline = absl::Seconds(1);
  const auto executor = MustStart(options);
  ASSERT_NE(executor, nullptr);
  ASSERT_OK_AND_ASSIGN(const auto before, Greedy(*executor, prompt_, 4));
  workers_["gpu1"]->Signal(SIGSTOP);
  EXPECT_THAT(
      Greedy(*executor, prompt_, 4),
      StatusIs(absl::StatusCode::kUnavailable,
               AllOf(HasSubstr("on gpu1: worker at " + remote), HasSubstr("did not answer"))));
  workers_["gpu1"]->Signal(SIGCONT);
  ASSERT_OK(executor->Recover(nullptr));
  ASSERT_OK_AND_ASSIGN(const auto after, Greedy(*executor, prompt_, 4));
  EXPECT_EQ(before, after) << "what it answered late went nowhere";
  workers_["gpu1"]->Signal(SIGKILL);
  EXPECT_THAT(Greedy(*executor, prompt_, 4),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(remote + " is gone")));
}

TEST_F(ExecutorHostsTest, AnotherModelOrNoLoaderThereIsRefusedByName) {
  const std::string bare = StartRemote("gpu1", host_, {});
  EXPECT_THAT(Refused(HostOptions({}, {bare})),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("gpu1"), HasSubstr("--loader"))));
  const InProcessLoader another(Socket("loader_c"), SourcePath("tests/data"));
  const std::string other =
      StartRemote("gpu2", host_, {"--loader", another.target(), "--model", "demo.Q4_0.gguf"});
  const absl::Status status = Refused(HostOptions({}, {other}));
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                               AllOf(HasSubstr("gpu2"), HasSubstr("as 'demo.Q4_0.gguf'"),
                                     HasSubstr("as 'demo.Q8_0.gguf'"))));
  std::vector<std::string> flags = WithOwnLoader();
  flags.insert(flags.end(), {"--model", "nowhere.gguf"});
  const std::string none = StartRemote("gpu3", host_, flags);
  EXPECT_THAT(Refused(HostOptions({}, {none})),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("model 'nowhere.gguf'")));
}

}  // namespace
}  // namespace tandem::gateway

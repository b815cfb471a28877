// --npu-prompts over real processes: an NPU computes prompts, whole, while the GPU, which has Embed and
// Head of them, decodes.
#include <functional>
#include <memory>

#include "services/common/testing/eventually.h"
#include "services/gateway/engine/testing/stream_reader.h"
#include "services/gateway/make_replicas.h"
#include "tests/integration/executor_fixture.h"

namespace tandem::gateway {
namespace {

using tandem::testing::Eventually;
using tandem::testing::StatusIs;
using ::testing::HasSubstr;

constexpr uint32_t kGpu = 0, kNpu = 1;  // replicas

// No KV of other calls is found for them.
std::vector<EngineRequest> Requests() {
  static int calls = 0;
  const std::string scope = "call " + std::to_string(++calls);
  std::vector<EngineRequest> requests;
  for (uint32_t i = 0; i < 6; ++i) {
    EngineRequest& request = requests.emplace_back();
    for (uint32_t t = 0; t < 90 + 20 * i; ++t) {
      request.prompt.push_back(2 + (t * 37 + 11 * i) % 300);
    }
    request.cache_scope = scope;
    request.sampling.temperature = i % 2 == 0 ? 0.0f : 1.0f;
    request.sampling.seed = i;
    request.max_tokens = 30;
    request.ignore_eos = true;
  }
  return requests;
}

class NpuPromptsTest : public ExecutorTest {
 protected:
  GatewayFlags Flags() {
    GatewayFlags flags;
    flags.server.listen = {"unix:" + Socket("gateway")};
    flags.http.server.listen = kHttpOff;
    flags.npu_prompts = true;
    flags.engine.max_sequences = 4;
    flags.engine.max_rows = 32;
    flags.executor = Options({"gpu0"}, NpuPolicy::kRequire);
    flags.executor.npu_targets = {"unix:" + Socket("npu0")};
    EXPECT_OK(FinishGatewayFlags(flags));
    return flags;
  }
  void StartNpu() { StartWorker("npu0", "unix:" + Socket("npu0"), {"--layers"}); }
  // Serves by the replicas of the flags.
  void Serve(const GatewayFlags& flags) {
    ASSERT_OK_AND_ASSIGN(std::vector<ReplicaStart> starts, MakeReplicas(flags));
    ASSERT_EQ(starts.size(), 2u);
    ASSERT_OK_AND_ASSIGN(std::unique_ptr<Executor> first, starts[0].start(nullptr));
    ASSERT_OK_AND_ASSIGN(tokenizer_, Tokenizer::Create(first->vocabulary()));
    ASSERT_OK_AND_ASSIGN(replicas_, Replicas::Create({0, std::move(first)}, *tokenizer_,
                                                     flags.engine, {std::move(starts)}));
  }
  v1::GetStatusResponse Status() const {
    v1::GetStatusResponse status;
    replicas_->FillStatus(status);
    return status;
  }
  void AwaitReady(uint32_t replica) {
    EXPECT_TRUE(Eventually([&] {
      return Status().replicas(static_cast<int>(replica)).state() == "ready";
    })) << Status().replicas(static_cast<int>(replica)).detail();
  }
  // `meanwhile` runs when the first token of an answer is there.
  std::vector<std::vector<uint32_t>> Answers(const std::function<void()>& meanwhile = [] {}) {
    const std::vector<EngineRequest> requests = Requests();
    std::vector<testing::StreamReader> readers(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_OK(replicas_->Submit(EngineRequest(requests[i]), readers[i].stream()));
    }
    meanwhile();
    std::vector<std::vector<uint32_t>> answers;
    for (testing::StreamReader& reader : readers) {
      EXPECT_OK(reader.ReadToEnd().status);
      answers.push_back(reader.tokens());
    }
    return answers;
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Replicas> replicas_;
};

TEST_F(NpuPromptsTest, AnswersAreThoseOfTheGpuAloneWhoeverDies) {
  StartLoader();
  StartWorker("gpu0");
  // Without the NPU the GPU answers alone.
  Serve(Flags());
  const auto expected = Answers();
  EXPECT_NE(Status().replicas(kNpu).state(), "ready");
  EXPECT_EQ(Status().replicas(kGpu).handed_over(), 0u);

  StartNpu();
  AwaitReady(kNpu);
  EXPECT_EQ(
      Status().replicas(kNpu).placement(),
      "Embed and Head on gpu0 (reference arithmetic on the host), the rest on npu0 (reference "
      "arithmetic on the host)");
  EXPECT_EQ(Answers(), expected);
  const v1::GetStatusResponse status = Status();
  EXPECT_EQ(status.replicas(kNpu).handed_over(), 6u);
  EXPECT_EQ(status.replicas(kGpu).requests(), 12u) << "six before, and those that came over";
  EXPECT_EQ(status.replicas(kGpu).kv_received_bytes(), status.replicas(kNpu).kv_sent_bytes());
  ASSERT_EQ(status.workers_size(), 2) << "gpu0, which both replicas have, is one worker";
  EXPECT_EQ(status.workers(0).name(), "gpu0");
  EXPECT_EQ(status.workers(1).name(), "npu0");

  for (const std::string name : {"npu0", "gpu0"}) {
    SCOPED_TRACE(name);
    EXPECT_EQ(Answers([&] {
                absl::SleepFor(absl::Milliseconds(300));
                workers_.erase(name);
                name == "npu0" ? StartNpu() : StartWorker(name);
              }),
              expected);
    AwaitReady(kGpu);
    AwaitReady(kNpu);
  }
}

TEST_F(NpuPromptsTest, AnNpuWithoutWholeLayersIsSaidToBeOne) {
  StartLoader();
  StartWorker("gpu0");
  StartWorker("npu0");
  Serve(Flags());
  EXPECT_TRUE(Eventually([&] { return Status().replicas(kNpu).state() == "failed"; }));
  EXPECT_EQ(Status().replicas(kNpu).detail(), "no NPU runs whole layers: npu0 has no Qkv stage");
  EXPECT_EQ(Status().state(), "ready");
}

}  // namespace
}  // namespace tandem::gateway

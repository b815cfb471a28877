// --npu-prompts over real processes: an NPU computes prompts, whole, while the GPU, which has Embed and
// Head of them, decodes.
#include <fstream>

#include "tests/integration/replicas_fixture.h"

namespace tandem::gateway {
namespace {

constexpr int kGpu = 0, kNpu = 1;  // replicas

class NpuPromptsTest : public ReplicasFixture {
 protected:
  void Serve() {
    GatewayFlags flags = Flags({"gpu0"}, NpuPolicy::kRequire);
    flags.npu_prompts = true;
    flags.executor.npu_targets = {"unix:" + Socket("npu0")};
    ReplicasFixture::Serve(flags);
  }
  void StartNpu() { StartWorker("npu0", "unix:" + Socket("npu0"), {"--layers"}); }
};

TEST_F(NpuPromptsTest, AnswersAreThoseOfTheGpuAloneWhoeverDies) {
  StartLoader();
  StartWorker("gpu0");
  // Without the NPU the GPU answers alone.
  Serve();
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
  const uint64_t handed_over = status.replicas(kNpu).handed_over();
  EXPECT_GE(handed_over, 3u) << "an answer may end before its KV has arrived";
  EXPECT_EQ(status.replicas(kGpu).requests(), 6 + handed_over) << "six before";
  EXPECT_LE(status.replicas(kGpu).kv_received_bytes(), status.replicas(kNpu).kv_sent_bytes());
  EXPECT_GT(status.replicas(kGpu).kv_received_bytes(), 0u);
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

TEST_F(NpuPromptsTest, AReplicaFileTakesAnNpuForPromptsAndLetsItGo) {
  const std::string decode = "unix:" + Socket("gpu0") + " role=decode\n";
  const auto prompts = [this](const char* words) {
    return "unix:" + Socket("gpu0") + " npu=unix:" + Socket("npu0") + " layers=npu role=prompts" +
           words + "\n";
  };
  const std::string path = directory_.path() + "/replicas";
  const auto write = [&path](const std::string& text) { std::ofstream(path) << text; };
  StartLoader();
  StartWorker("gpu0");
  StartNpu();
  GatewayFlags flags = Flags({}, NpuPolicy::kAuto);
  flags.replica_file = path;
  write(decode + prompts(""));
  ReplicasFixture::Serve(flags);
  AwaitReady(1);
  const auto expected = Answers();
  EXPECT_GT(Status().replicas(1).handed_over(), 0u);
  // As often as a worker can hold plans: each leaves nothing behind.
  for (int i = 0; i < 9; ++i) {
    write(decode + prompts(i % 2 == 0 ? " kv=f16" : ""));
    Reload(flags);
    EXPECT_TRUE(Eventually([this] {
      return Status().replicas_size() == 2 && Status().replicas(1).state() == "ready";
    })) << Status().replicas(1).detail();
  }
  EXPECT_EQ(Answers(), expected);
  write(decode);
  Reload(flags);
  EXPECT_TRUE(Eventually([this] { return Status().replicas_size() == 1; }));
  EXPECT_EQ(Answers(), expected);
}

TEST_F(NpuPromptsTest, AnNpuWithoutWholeLayersIsSaidToBeOne) {
  StartLoader();
  StartWorker("gpu0");
  StartWorker("npu0");
  Serve();
  EXPECT_TRUE(Eventually([&] { return Status().replicas(kNpu).state() == "failed"; }));
  EXPECT_EQ(Status().replicas(kNpu).detail(), "no NPU runs whole layers: npu0 has no Qkv stage");
  EXPECT_EQ(Status().state(), "ready");
}

}  // namespace
}  // namespace tandem::gateway

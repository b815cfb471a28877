// Prompts on one worker and answers on another, over every reference model: the tokens of one worker.
#include <algorithm>
#include <cctype>

#include "services/common/testing/paths.h"
#include "tests/integration/replicas_fixture.h"

namespace tandem::gateway {
namespace {

struct Model {
  std::string folder;
  std::string name;
};

class PhasesModelsTest : public ReplicasFixture, public ::testing::WithParamInterface<Model> {
 protected:
  GatewayFlags Flags(const std::vector<std::string>& workers) {
    GatewayFlags flags = ReplicasFixture::Flags(workers, NpuPolicy::kOff);
    flags.executor.model_name = GetParam().name;
    return flags;
  }
};

TEST_P(PhasesModelsTest, TokensAreThoseOfOneWorkerHoweverPromptsAreCutAndWhoeverDies) {
  StartLoader(GetParam().folder);
  StartWorker("gpu0");
  GatewayFlags alone = Flags({"gpu0"});
  Serve(alone);
  const auto expected = Answers();
  StopServing();
  StartWorker("gpu1");
  for (const uint32_t chunk : {32, 13}) {
    SCOPED_TRACE(chunk);
    GatewayFlags flags = Flags({"gpu0", "gpu1"});
    flags.num_replicas = 2;
    flags.num_prompt_replicas = 1;
    flags.engine.chunk_rows = chunk;
    Serve(flags);
    AwaitReady(1);
    EXPECT_EQ(Answers(), expected);
    // An answer may end before its KV has arrived.
    EXPECT_GE(Status().replicas(0).handed_over(), 3u);
    for (const std::string name : {"gpu0", "gpu1"}) {
      EXPECT_EQ(Answers([&] {
                  absl::SleepFor(absl::Milliseconds(300));
                  workers_.erase(name);
                  StartWorker(name);
                }),
                expected)
          << name;
      AwaitReady(0);
      AwaitReady(1);
    }
    StopServing();
  }
}

INSTANTIATE_TEST_SUITE_P(Models, PhasesModelsTest,
                         ::testing::Values(Model{SourcePath("models/demo"), "demo.Q8_0.gguf"},
                                           Model{SourcePath("tests/data"), "demo.Q4_0.gguf"},
                                           Model{TestDataPath(""), "demo"},
                                           Model{TestDataPath(""), "random-1b-shape"},
                                           Model{TestDataPath(""), "random-27b-shape"}),
                         [](const auto& instance) {
                           std::string name = instance.param.name;
                           std::ranges::replace_if(
                               name, [](char c) { return !isalnum(c); }, '_');
                           return name;
                         });

}  // namespace
}  // namespace tandem::gateway

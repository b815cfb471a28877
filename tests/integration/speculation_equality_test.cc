// Guesses change no token: answers of the demo models with and without, in batches of all sizes,
// greedy and sampled, while workers are killed and sequences preempted.
//
//   engine (this process) -- loader (this process)
//      |-- gpu0: reference_worker or, in the last case, tandem-gpu-worker; killed now and then
//      `-- npu0: tandem-npu-worker on an emulated NPU, in one case
//
// The arithmetic gives the same bits whatever rows are in a step, so every token must be the same.  A GPU may have
// other bits for other numbers of rows: there answers may differ where a near tie was counted.
// TANDEM_EQUAL_REQUESTS: how many requests; scripts/nightly runs 2,000.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/common/rpc/polling.h"
#include "services/common/testing/paths.h"
#include "services/common/testing/status_matchers.h"
#include "services/common/testing/temporary_directory.h"
#include "services/gateway/draft/draft_model.h"
#include "services/gateway/draft/draft_options.h"
#include "services/gateway/engine/engine.h"
#include "services/gateway/engine/testing/stream_reader.h"
#include "services/gateway/speculation/lookup_drafter.h"
#include "services/gateway/tokenizer/chat_template.h"
#include "tests/integration/cluster.h"

namespace tandem::gateway {
namespace {

using tandem::testing::ChildProcess;
using tandem::testing::InProcessLoader;
using testing::StreamReader;

uint32_t NumRequests() {
  const char* const wanted = std::getenv("TANDEM_EQUAL_REQUESTS");
  return wanted == nullptr ? 40 : static_cast<uint32_t>(std::atoi(wanted));
}

// A model, what guesses for it, and its share of the requests.
struct Variant {
  const char* name;
  const char* model;
  const char* draft;  // empty: lookup alone
  bool npu;
  bool gpu;        // not the reference worker
  uint32_t share;  // one of so many
};

std::string RandomMessage(std::mt19937& random) {
  const auto one_of = [&](std::initializer_list<const char*> words) {
    return std::string(*(words.begin() + random() % words.size()));
  };
  const int a = static_cast<int>(random() % 90), b = static_cast<int>(random() % 90);
  const std::string thing = one_of({"drum", "fig", "lamp", "rice", "coin", "kite"});
  switch (random() % 6) {
    case 0:
      return absl::StrFormat("What is %d + %d?", a, b);
    case 1:
      return absl::StrFormat("Count from %d to %d.", a, a + 20);
    case 2:
      return "What is the capital of " + one_of({"Japan", "France", "Peru", "Kenya"}) + "?";
    case 3:
      return absl::StrFormat("Remove %s from this list:\n\n- pear\n- %s\n- soup\n- hat", thing,
                             thing);
    case 4:
      return absl::StrFormat("Repeat: %s %d %s %d %s %d", thing, a, thing, a, thing, a);
    default:
      return "Tell me a story about Ada, a " + one_of({"brave", "kind", "proud"}) + " fox.";
  }
}

SamplingParams RandomSampling(std::mt19937& random) {
  SamplingParams sampling;
  sampling.seed = random();
  sampling.temperature = random() % 2 == 0 ? 0.0f : 1.0f;
  if (random() % 4 == 0) sampling.repetition_penalty = 1.15f;
  if (random() % 4 == 0) sampling.min_p = 0.05f;
  if (random() % 8 == 0) sampling.top_k = 0;  // needs all logits
  if (random() % 8 == 0) sampling.frequency_penalty = 0.4f;
  return sampling;
}

class SpeculationEqualityTest : public ::testing::TestWithParam<Variant> {
 protected:
  static void SetUpTestSuite() { PollForLatency(); }  // as the gateway does

  void SetUp() override {
    loader_ = std::make_unique<InProcessLoader>(Socket("loader"), TestDataPath(""));
    StartWorker("gpu0");
    if (GetParam().npu) StartWorker("npu0");
  }
  std::string Socket(const std::string& name) const {
    return directory_.path() + "/" + name + ".sock";
  }
  void StartWorker(const std::string& name) {
    const bool npu = name == "npu0";
    std::vector<std::string> arguments = {"--listen", "unix:" + Socket(name), "--name", name};
    if (npu) arguments.insert(arguments.end(), {"--npu", "emulate"});
    workers_[name] =
        std::make_unique<ChildProcess>(BuildPath(npu              ? "bin/tandem-npu-worker"
                                                 : GetParam().gpu ? "bin/tandem-gpu-worker"
                                                                  : "bin/reference_worker"),
                                       arguments);
  }
  ExecutorOptions Options() const {
    ExecutorOptions options;
    options.loader_target = "unix:" + Socket("loader");
    options.worker_targets = {"unix:" + Socket("gpu0")};
    if (GetParam().npu) options.npu_targets = {"unix:" + Socket("npu0")};
    options.model_name = GetParam().model;
    options.plan_token = "a token of 16 by";
    options.policy.npu = GetParam().npu ? NpuPolicy::kEmulate : NpuPolicy::kOff;
    options.max_rows = 48;
    options.max_sequences = 8;
    options.context_len = 160;
    options.kv_tokens = 160;  // fewer than eight sequences have: some are preempted
    options.worker_grace = absl::Milliseconds(100);
    return options;
  }

  // Both engines' options but for what guesses.
  static EngineOptions Engines() {
    return {.max_sequences = 8,
            .max_rows = 48,
            .chunk_rows = 32,
            .max_waiting = 100,
            .max_attempts = 1000,
            .min_recovery_pause = absl::Milliseconds(5)};
  }
  EngineOptions Drafted() const {
    EngineOptions options = Engines();
    // As on a device that is bound by reading the weights: guesses pay.
    options.step_seconds = [](uint32_t num_rows) { return 10.0 + 0.01 * num_rows; };
    options.make_drafters =
        [this](const Executor& target,
               const Executor::Progress&) -> absl::StatusOr<std::vector<std::unique_ptr<Drafter>>> {
      std::vector<std::unique_ptr<Drafter>> drafters;
      drafters.push_back(std::make_unique<LookupDrafter>());
      if (GetParam().draft[0] == '\0') return drafters;
      TANDEM_ASSIGN_OR_RETURN(const ExecutorOptions draft,
                              DraftExecutorOptions(Options(), {.model_name = GetParam().draft}));
      const auto start = [draft](const Executor::Progress& progress) {
        return Executor::Start(draft, progress);
      };
      TANDEM_ASSIGN_OR_RETURN(drafters.emplace_back(),
                              DraftModel::Create({.start = start,
                                                  .name = draft.model_name,
                                                  .min_pause = absl::Milliseconds(20),
                                                  .max_pause = absl::Milliseconds(200)},
                                                 target.vocabulary(), nullptr));
      return drafters;
    };
    return options;
  }

  // kill -9, and starts it again: the workers in turn.
  void RestartAWorker() {
    const std::string name = GetParam().npu && num_kills_++ % 2 == 1 ? "npu0" : "gpu0";
    workers_[name]->Signal(SIGKILL);
    workers_[name]->Wait();
    StartWorker(name);
  }
  // In waves of one to thirteen requests; `kills`: in every fourth, once its first tokens are there.
  std::vector<std::vector<uint32_t>> RunAll(Engine& engine,
                                            const std::vector<EngineRequest>& requests,
                                            bool kills) {
    std::vector<std::vector<uint32_t>> answers;
    constexpr size_t kWaves[] = {13, 6, 1, 10, 3};
    uint32_t wave = 0;
    for (size_t first = 0; first < requests.size(); ++wave) {
      const size_t end =
          std::min<size_t>(requests.size(), first + kWaves[wave % std::size(kWaves)]);
      std::vector<std::unique_ptr<StreamReader>> readers;
      for (size_t i = first; i < end; ++i) {
        readers.push_back(std::make_unique<StreamReader>());
        EXPECT_OK(engine.Submit(requests[i], readers.back()->stream()));
      }
      if (kills && wave % 4 == 0) {
        readers[0]->Read();
        RestartAWorker();
      }
      for (const auto& reader : readers) {
        EXPECT_OK(reader->ReadToEnd().status);
        answers.push_back(reader->tokens());
      }
      first = end;
    }
    return answers;
  }

  const TemporaryDirectory directory_;
  std::unique_ptr<InProcessLoader> loader_;
  std::map<std::string, std::unique_ptr<ChildProcess>> workers_;
  uint32_t num_kills_ = 0;
};

TEST_P(SpeculationEqualityTest, TokensAreTheSame) {
  ASSERT_OK_AND_ASSIGN(auto executor, Executor::Start(Options(), nullptr));
  ASSERT_OK_AND_ASSIGN(const auto tokenizer, Tokenizer::Create(executor->vocabulary()));
  std::mt19937 random(1125);
  std::vector<EngineRequest> requests(NumRequests() / GetParam().share);
  for (EngineRequest& request : requests) {
    ASSERT_OK_AND_ASSIGN(request.prompt,
                         RenderChat(*tokenizer, executor->config().bos_token_id,
                                    {{.role = "user", .content = RandomMessage(random)}}));
    request.sampling = RandomSampling(random);
    request.max_tokens = 4 + random() % 25;
    request.use_prefix_cache = random() % 2 == 0;
  }

  std::vector<std::vector<uint32_t>> plain;
  {
    ASSERT_OK_AND_ASSIGN(const auto engine,
                         Engine::Create(std::move(executor), *tokenizer, Engines()));
    plain = RunAll(*engine, requests, /*kills=*/false);
  }
  ASSERT_OK_AND_ASSIGN(executor, Executor::Start(Options(), nullptr));
  ASSERT_OK_AND_ASSIGN(const auto engine,
                       Engine::Create(std::move(executor), *tokenizer, Drafted()));
  const std::vector<std::vector<uint32_t>> drafted = RunAll(*engine, requests, /*kills=*/true);

  uint32_t differ = 0, tokens = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (!GetParam().gpu) {
      EXPECT_EQ(drafted[i], plain[i])
          << "request " << i << ", temperature " << requests[i].sampling.temperature;
    }
    differ += drafted[i] != plain[i] ? 1 : 0;
    tokens += static_cast<uint32_t>(plain[i].size());
  }
  v1::GetStatusResponse status;
  engine->FillStatus(status);
  uint64_t verified = 0, accepted = 0;
  for (const v1::DrafterStatus& drafter : status.scheduler().drafters()) {
    verified += drafter.drafted_tokens();
    accepted += drafter.accepted_tokens();
  }
  std::printf(
      "%zu requests, %u tokens, %u differ; %d of %d guesses accepted, %d near ties, %d "
      "preemptions, "
      "%d recoveries\n",
      requests.size(), tokens, differ, static_cast<int>(accepted), static_cast<int>(verified),
      static_cast<int>(engine->counters().near_ties),
      static_cast<int>(status.scheduler().preemptions()), static_cast<int>(status.recoveries()));
  EXPECT_LE(differ, engine->counters().near_ties);
  EXPECT_GT(accepted, 0u);
  EXPECT_GT(verified - accepted, 0u) << "no guess was wrong";
  // A few answers may all fit.
  if (requests.size() >= 100) {
    EXPECT_GT(status.scheduler().preemptions(), 0u);
  }
  EXPECT_GT(status.recoveries(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Models, SpeculationEqualityTest,
                         ::testing::Values(Variant{"DraftModel", "demo2.Q8_0.gguf",
                                                   "demo2-draft.Q8_0.gguf", false, false, 2},
                                           Variant{"Lookup", "demo.Q4_0.gguf", "", false, false, 4},
                                           Variant{"EmulatedNpu", "demo2.Q8_0.gguf",
                                                   "demo2-draft.Q8_0.gguf", true, false, 4},
                                           Variant{"Gpu", "demo2.Q8_0.gguf",
                                                   "demo2-draft.Q8_0.gguf", false, true, 8}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace tandem::gateway

// --npu=auto over real processes: placements are tried, chosen by what steps take, and left.
#include <filesystem>
#include <fstream>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/gateway/engine/engine.h"
#include "services/gateway/engine/testing/stream_reader.h"
#include "tests/integration/executor_fixture.h"

namespace tandem::gateway {
namespace {

using tandem::testing::StatusIs;
using ::testing::HasSubstr;

class AutoPlacementTest : public ExecutorTest {
 protected:
  // Microseconds that each Attend of a worker takes longer from now on.
  void Delay(const std::string& worker, int microseconds) {
    const std::string path = DelayFile(worker);
    std::ofstream(path + ".new") << microseconds;
    std::filesystem::rename(path + ".new", path);
  }
  void StartDelayed(const std::string& name, int microseconds, const std::string& driver = "1.0",
                    double watts = 0.0) {
    Delay(name, microseconds);
    StartWorker(name, "unix:" + Socket(name),
                {"--attend-delay", DelayFile(name), "--driver", driver,
                 absl::StrFormat("--watts=%g", watts)});
  }
  ExecutorOptions AutoOptions() {
    ExecutorOptions options = Options({"gpu0"}, NpuPolicy::kAuto);
    options.npu_targets = {"unix:" + Socket("npu0")};
    options.costs_file = directory_.path() + "/placements.json";
    options.choice.sustain = absl::Milliseconds(300);
    options.choice.steps = 4;
    options.choice.first_pause = absl::Seconds(3);
    return options;
  }
  static v1::GetStatusResponse Status(const Executor& executor) {
    v1::GetStatusResponse status;
    executor.FillStatus(status);
    return status;
  }
  // Decodes until the executor wants another placement; its error.
  absl::Status DecodeUntilItMoves(Executor& executor) {
    const absl::Time deadline = absl::Now() + absl::Seconds(60);
    while (absl::Now() < deadline) {
      const absl::Status status = Greedy(executor, prompt_, 40).status();
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

 private:
  std::string DelayFile(const std::string& worker) const {
    return directory_.path() + "/" + worker + ".delay";
  }
};

TEST_F(AutoPlacementTest, AttendGoesWhereStepsAreFasterAndTokensAreTheSame) {
  StartLoader();
  StartDelayed("gpu0", 20'000);
  StartDelayed("npu0", 0);
  auto with_npu = MustStart(AutoOptions());
  ASSERT_NE(with_npu, nullptr);
  EXPECT_THAT(with_npu->placement(), HasSubstr("on npu0"));
  const v1::GetStatusResponse status = Status(*with_npu);
  ASSERT_EQ(status.placements_size(), 2);
  EXPECT_TRUE(status.placements(0).in_force());
  EXPECT_EQ(status.placements(0).placement(), with_npu->placement());
  EXPECT_GT(status.placements(0).predicted_decode_tokens_per_second(),
            2 * status.placements(1).predicted_decode_tokens_per_second());
  EXPECT_GT(status.placements(0).predicted_prompt_tokens_per_second(), 0.0);
  ASSERT_OK_AND_ASSIGN(const auto tokens, Greedy(*with_npu, prompt_, 6));
  with_npu.reset();

  // Another gateway without what the first has kept.
  Delay("gpu0", 0);
  Delay("npu0", 20'000);
  ExecutorOptions options = AutoOptions();
  options.costs_file.clear();
  const auto without_npu = MustStart(options);
  ASSERT_NE(without_npu, nullptr);
  EXPECT_THAT(without_npu->placement(), HasSubstr("everything on gpu0"));
  EXPECT_EQ(without_npu->plan().notice, "");
  ASSERT_OK_AND_ASSIGN(const auto same, Greedy(*without_npu, prompt_, 6));
  EXPECT_EQ(tokens, same);
}

TEST_F(AutoPlacementTest, WhatWasMeasuredIsKept) {
  StartLoader();
  StartDelayed("gpu0", 20'000);
  StartDelayed("npu0", 0);
  MustStart(AutoOptions());
  // No longer true, and not measured again.
  Delay("gpu0", 0);
  Delay("npu0", 20'000);
  const auto executor = MustStart(AutoOptions());
  ASSERT_NE(executor, nullptr);
  EXPECT_THAT(executor->placement(), HasSubstr("on npu0"));
  EXPECT_EQ(executor->plan().workers.size(), 2u);
}

TEST_F(AutoPlacementTest, AnotherDriverIsMeasuredAgain) {
  StartLoader();
  StartDelayed("gpu0", 20'000);
  StartDelayed("npu0", 0);
  MustStart(AutoOptions());
  workers_.erase("gpu0");
  StartDelayed("gpu0", 0, "1.1");
  Delay("npu0", 20'000);
  const auto executor = MustStart(AutoOptions());
  ASSERT_NE(executor, nullptr);
  EXPECT_THAT(executor->placement(), HasSubstr("everything on gpu0"));
}

TEST_F(AutoPlacementTest, EnergyMayFavourWhatIsSlower) {
  StartLoader();
  StartDelayed("gpu0", 5'000, "1.0", 1.0);
  StartDelayed("npu0", 0, "1.0", 10e3);
  ExecutorOptions options = AutoOptions();
  auto fastest = MustStart(options);
  ASSERT_NE(fastest, nullptr);
  EXPECT_THAT(fastest->placement(), HasSubstr("on npu0"));
  EXPECT_EQ(Status(*fastest).placements(0).predicted_joules_per_token(), 0.0) << "not measured";
  fastest.reset();

  // Measured again, for the kept times have no power; then kept.
  options.favour = Favour::kEnergy;
  for (int start = 0; start < 2; ++start) {
    const auto executor = MustStart(options);
    ASSERT_NE(executor, nullptr);
    EXPECT_THAT(executor->placement(), HasSubstr("everything on gpu0"));
    EXPECT_EQ(executor->plan().notice, "");
    const v1::GetStatusResponse status = Status(*executor);
    ASSERT_EQ(status.placements_size(), 2);
    EXPECT_GT(status.placements(0).predicted_joules_per_token(), 0.0);
    EXPECT_GT(status.placements(1).predicted_joules_per_token(),
              status.placements(0).predicted_joules_per_token());
    EXPECT_LT(status.placements(0).predicted_decode_tokens_per_second(),
              status.placements(1).predicted_decode_tokens_per_second());
  }
}

TEST_F(AutoPlacementTest, WithoutThePowerOfADeviceTimeDecides) {
  StartLoader();
  StartDelayed("gpu0", 5'000, "1.0", 1.0);
  StartDelayed("npu0", 0);
  ExecutorOptions options = AutoOptions();
  options.favour = Favour::kEnergy;
  for (int start = 0; start < 2; ++start) {
    const auto executor = MustStart(options);
    ASSERT_NE(executor, nullptr);
    EXPECT_THAT(executor->placement(), HasSubstr("on npu0"));
    EXPECT_THAT(executor->plan().notice, HasSubstr("the power of npu0 cannot be read"));
    const v1::GetStatusResponse status = Status(*executor);
    EXPECT_EQ(status.placements(0).predicted_joules_per_token(), 0.0);
    EXPECT_GT(status.placements(1).predicted_joules_per_token(), 0.0);
  }
}

TEST_F(AutoPlacementTest, LeavesAnNpuThatHasBecomeSlowAndComesBack) {
  StartLoader();
  StartDelayed("gpu0", 5'000);
  StartDelayed("npu0", 0);
  const auto executor = MustStart(AutoOptions());
  ASSERT_NE(executor, nullptr);
  ASSERT_THAT(executor->placement(), HasSubstr("on npu0"));
  ASSERT_OK_AND_ASSIGN(const auto tokens, Greedy(*executor, prompt_, 20));

  Delay("npu0", 40'000);
  EXPECT_THAT(DecodeUntilItMoves(*executor),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("the placement changes: everything on gpu0")));
  EXPECT_EQ(Status(*executor).placement_moves(), 1u);
  ASSERT_OK(executor->Recover(nullptr));
  EXPECT_THAT(executor->placement(), HasSubstr("everything on gpu0"));
  EXPECT_GT(Status(*executor).placements(1).measured_slowdown(), 1.5);
  ASSERT_OK_AND_ASSIGN(const auto on_gpu, Greedy(*executor, prompt_, 6));
  EXPECT_EQ(on_gpu, std::vector<uint32_t>(tokens.begin(), tokens.begin() + 6));

  Delay("npu0", 0);
  EXPECT_THAT(DecodeUntilItMoves(*executor),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("the placement changes: Attend")));
  ASSERT_OK(executor->Recover(nullptr));
  EXPECT_THAT(executor->placement(), HasSubstr("on npu0"));
  ASSERT_OK_AND_ASSIGN(const auto back, Greedy(*executor, prompt_, 20));
  EXPECT_EQ(back, tokens);
}

TEST_F(AutoPlacementTest, WithoutAnNpuNothingIsTried) {
  StartLoader();
  StartWorker("gpu0");
  const auto executor = MustStart(AutoOptions());
  ASSERT_NE(executor, nullptr);
  EXPECT_THAT(executor->placement(), HasSubstr("everything on gpu0"));
  EXPECT_EQ(Status(*executor).placements_size(), 0);
  EXPECT_FALSE(std::filesystem::exists(AutoOptions().costs_file));
}

TEST_F(AutoPlacementTest, AnNpuThatRefusesThePlansIsLeftOut) {
  StartLoader();
  StartWorker("gpu0");
  const std::string refusal = directory_.path() + "/refusal";
  std::ofstream(refusal) << "no hardware context is free";
  // With Out, and with layers of its own, it has three placements: all are refused.
  StartWorker("npu0", "unix:" + Socket("npu0"), {"--layers", "--refuse-plans", refusal});
  const auto executor = MustStart(AutoOptions());
  ASSERT_NE(executor, nullptr);
  EXPECT_THAT(executor->placement(), HasSubstr("everything on gpu0"));
  EXPECT_THAT(executor->plan().notice, HasSubstr("Attend x12 and Out x12 on npu0"));
  EXPECT_THAT(executor->plan().notice, HasSubstr("no hardware context is free"));
  ASSERT_OK(Greedy(*executor, prompt_, 6).status());
}

// Each row takes each device as long in each layer: with half of the layers each they compute two parts
// of a prompt at once.
TEST_F(AutoPlacementTest, AnNpuThatIsAsFastGetsHalfOfTheLayers) {
  StartLoader();
  for (const std::string name : {"gpu0", "npu0"}) {
    Delay(name, 1'000);
    std::vector<std::string> flags = {"--ffn-delay", directory_.path() + "/" + name + ".delay",
                                      "--delay-by-row"};
    if (name == "npu0") flags.push_back("--layers");
    StartWorker(name, "unix:" + Socket(name), flags);
  }
  ExecutorOptions options = AutoOptions();
  options.context_len = 2048;  // for long prompts
  options.policy.npu = NpuPolicy::kOff;
  auto gpu_alone = MustStart(options);
  ASSERT_NE(gpu_alone, nullptr);
  ASSERT_OK_AND_ASSIGN(const auto expected, Greedy(*gpu_alone, prompt_, 6));
  gpu_alone.reset();
  // Of 12 layers three at first, then what these say.
  options.policy.npu = NpuPolicy::kAuto;
  const auto npu_layers = [](const Plan& plan) {
    if (plan.segments.size() != 3) return 0.0;
    return (plan.segments[1].last_ordinal - plan.segments[1].first_ordinal + 1) / 4.0;
  };
  // Measured anew where this machine stalled meanwhile.
  auto executor = MustStart(options);
  const auto is_half = [&] { return std::abs(npu_layers(executor->plan()) - 6.0) <= 1.0; };
  for (int i = 0; i < 3 && executor != nullptr && !is_half(); ++i) {
    executor.reset();
    std::filesystem::remove(options.costs_file);
    executor = MustStart(options);
  }
  for (const bool kept : {false, true}) {
    if (kept) {
      executor.reset();
      executor = MustStart(options);
    }
    ASSERT_NE(executor, nullptr);
    const v1::GetStatusResponse status = Status(*executor);
    EXPECT_NEAR(npu_layers(executor->plan()), 6.0, 1.0) << executor->placement();
    EXPECT_EQ(status.placements(0).placement(), executor->placement());
    ASSERT_GE(status.placements_size(), 2);
    ASSERT_OK_AND_ASSIGN(const auto tokens, Greedy(*executor, prompt_, 6));
    EXPECT_EQ(tokens, expected);
  }
}

TEST_F(AutoPlacementTest, WhatWasRefusedOnceAndServesIsNotSaidToBeLeftOut) {
  StartLoader();
  const std::string refusal = directory_.path() + "/refusal";
  StartWorker("gpu0", "unix:" + Socket("gpu0"), {"--refuse-plans", refusal});
  const auto executor = MustStart(AutoOptions());
  ASSERT_NE(executor, nullptr);
  std::ofstream(refusal) << "no memory";
  EXPECT_THAT(executor->Recover(nullptr),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("no memory")));
  std::filesystem::remove(refusal);
  ASSERT_OK(executor->Recover(nullptr));
  EXPECT_THAT(executor->plan().notice, ::testing::Not(HasSubstr("left out")));
}

TEST_F(AutoPlacementTest, AnNpuThatComesLaterIsTried) {
  StartLoader();
  StartDelayed("gpu0", 20'000);
  const auto executor = MustStart(AutoOptions());
  ASSERT_NE(executor, nullptr);
  StartDelayed("npu0", 0);
  absl::Status status;
  for (int i = 0; i < 200 && status.ok(); ++i) {
    absl::SleepFor(absl::Milliseconds(50));
    status = executor->CheckWorkers();
  }
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("npu0 is there now")));
  ASSERT_OK(executor->Recover(nullptr));
  EXPECT_THAT(executor->placement(), HasSubstr("on npu0"));
  EXPECT_EQ(Status(*executor).placements_size(), 2);
}

EngineRequest Request(uint64_t seed) {
  EngineRequest request;
  for (uint32_t i = 0; i < 20 + seed; ++i) request.prompt.push_back(2 + (i * 37 + 11) % 300);
  request.sampling.temperature = seed == 0 ? 0.0f : 1.0f;
  request.sampling.seed = seed;
  request.max_tokens = 220;
  request.ignore_eos = true;
  return request;
}

// Answers to three requests at once; `meanwhile` runs beside them.
std::vector<std::vector<uint32_t>> Answers(std::unique_ptr<Executor> executor,
                                           const std::function<void(Engine&)>& meanwhile) {
  const auto tokenizer = Tokenizer::Create(executor->vocabulary());
  EXPECT_OK(tokenizer.status());
  const auto engine =
      Engine::Create(std::move(executor), **tokenizer, {.max_sequences = 4, .max_rows = 32});
  EXPECT_OK(engine.status());
  std::vector<testing::StreamReader> readers(3);
  for (uint64_t seed = 0; seed < readers.size(); ++seed) {
    EXPECT_OK((*engine)->Submit(Request(seed), readers[seed].stream()));
  }
  meanwhile(**engine);
  std::vector<std::vector<uint32_t>> answers;
  for (testing::StreamReader& reader : readers) {
    EXPECT_OK(reader.ReadToEnd().status);
    answers.push_back(reader.tokens());
  }
  return answers;
}

TEST_F(AutoPlacementTest, StreamsGoOnOverMoves) {
  StartLoader();
  StartDelayed("gpu0", 0);
  StartDelayed("npu0", 0);
  auto off = MustStart(Options({"gpu0"}, NpuPolicy::kOff));
  ASSERT_NE(off, nullptr);
  const auto expected = Answers(std::move(off), [](Engine&) {});
  Delay("gpu0", 3'000);
  ExecutorOptions options = AutoOptions();
  options.choice.first_pause = absl::Seconds(2);
  auto executor = MustStart(options);
  ASSERT_NE(executor, nullptr);
  const auto answers = Answers(std::move(executor), [this](Engine& engine) {
    const auto await_moves = [&](uint64_t moves) {
      v1::GetStatusResponse status;
      const absl::Time patience = absl::Now() + absl::Seconds(60);
      do {
        absl::SleepFor(absl::Milliseconds(20));
        engine.FillStatus(status);
      } while (status.placement_moves() < moves && absl::Now() < patience);
      EXPECT_EQ(status.placement_moves(), moves);
    };
    // Eight steps of each of two lanes say what steps of up to 127 positions take; those that are left
    // of them then show that the NPU is slow.
    v1::GetStatusResponse status;
    const absl::Time patience = absl::Now() + absl::Seconds(30);
    do {
      absl::SleepFor(absl::Milliseconds(5));
      engine.FillStatus(status);
    } while (status.scheduler().steps() < 40 && absl::Now() < patience);
    Delay("npu0", 30'000);
    await_moves(1);
    Delay("npu0", 0);
    await_moves(2);
  });
  EXPECT_EQ(answers, expected);
}

}  // namespace
}  // namespace tandem::gateway

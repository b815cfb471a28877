#include "tests/conformance/worker_suite.h"

#include <algorithm>
#include <random>

#include "services/common/base/status_macros.h"

namespace tandem::conformance {
namespace {

absl::StatusOr<std::unique_ptr<Worker>>& SharedWorker() {
  static absl::StatusOr<std::unique_ptr<Worker>> worker = BackendUnderTest().make_worker();
  return worker;
}

}  // namespace

void WorkerSuite::SetUp() {
  const auto& made = SharedWorker();
  if (made.ok()) return;
  if (absl::IsNotFound(made.status())) {
    GTEST_SKIP() << "NO DEVICE for " << BackendUnderTest().name << ": " << made.status();
  }
  FAIL() << BackendUnderTest().name << ": " << made.status();
}

Worker& WorkerSuite::worker() const { return **SharedWorker(); }

double WorkerSuite::EpsilonWith(DType dtype) const {
  const bool quantised = Traits(dtype).block_elements > 1;
  const auto of = BackendUnderTest().quantised_epsilon;
  return quantised && of != nullptr ? of(worker()) : epsilon();
}

bool WorkerSuite::Offers(StageKind kind) const {
  const auto& stages = worker().description().stages;
  return std::ranges::find(stages, kind) != stages.end();
}

bool WorkerSuite::OffersEverything() const {
  for (int kind = 0; kind < kNumDecoderStageKinds; ++kind) {
    if (!Offers(static_cast<StageKind>(kind))) return false;
  }
  return true;
}

bool WorkerSuite::Takes(const ModelConfig& config, DType dtype) const {
  const WorkerDescription& self = worker().description();
  const bool any_head = self.head_dims.empty() || !Offers(StageKind::kAttend);
  const bool head = any_head || std::ranges::count(self.head_dims, config.head_dim) > 0;
  const bool weights = self.weight_dtypes.empty() || std::ranges::count(self.weight_dtypes, dtype);
  return head && weights;
}

absl::StatusOr<std::unique_ptr<PlanRunner>> WorkerSuite::RunStages(
    std::shared_ptr<const WeightSet> weights, const RunLimits& limits) const {
  std::vector<Segment> segments;
  const ModelConfig& config = weights->config();
  for (uint32_t ordinal = 0; ordinal < NumStages(config.num_layers); ++ordinal) {
    const Stage stage = StageAt(ordinal, config.num_layers);
    if (Offers(stage.kind)) segments.push_back(testing::SingleStage(stage, config));
  }
  return PlanRunner::Create(std::move(weights), {&worker()}, std::move(segments), limits);
}

absl::StatusOr<std::unique_ptr<PlanRunner>> WorkerSuite::RunWhole(
    std::shared_ptr<const WeightSet> weights, const RunLimits& limits) {
  if (OffersEverything()) {
    std::vector<Segment> segments = testing::WholeModel(weights->config());
    return PlanRunner::Create(std::move(weights), {&worker()}, std::move(segments), limits);
  }
  if (companion_ == nullptr) {
    companion_ = std::make_unique<reference::ReferenceWorker>(
        reference::ReferenceWorkerOptions{.name = "companion"});
  }
  const PlacementPolicy policy{
      .npu = worker().description().emulated ? NpuPolicy::kEmulate : NpuPolicy::kRequire,
      .out_on_npu = Offers(StageKind::kOut)};
  return PlanRunner::CreatePlanned(std::move(weights), {companion_.get(), &worker()}, policy,
                                   limits);
}

std::vector<uint32_t> MakeTokens(const ModelConfig& config, uint32_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint32_t> tokens(n);
  for (uint32_t& token : tokens) token = random() % config.vocab_size;
  return tokens;
}

absl::StatusOr<std::vector<float>> LogitsOfSequence(PlanRunner& runner,
                                                    const std::vector<uint32_t>& tokens,
                                                    uint32_t chunk) {
  StepBuilder steps(runner.limits());
  const uint32_t sequence = steps.AddSequence();
  std::vector<float> logits;
  for (size_t at = 0; at < tokens.size(); at += chunk) {
    const size_t end = std::min<size_t>(tokens.size(), at + chunk);
    steps.Begin();
    steps.set_want_logits(true);
    steps.AddRows(sequence, {tokens.begin() + at, tokens.begin() + end});
    for (uint32_t row = 0; row < end - at; ++row) steps.AddOutput(row);
    TANDEM_RETURN_IF_ERROR(runner.RunStep(steps.batch()));
    for (uint32_t row = 0; row < end - at; ++row) {
      const std::span<const float> one = runner.Logits(row);
      logits.insert(logits.end(), one.begin(), one.end());
    }
  }
  return logits;
}

}  // namespace tandem::conformance

// The fixture of the conformance suite.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "services/common/reference/reference_worker.h"
#include "services/common/testing/compare.h"
#include "services/common/testing/model_configs.h"
#include "services/common/testing/plan_runner.h"
#include "services/common/testing/random_weights.h"
#include "services/common/testing/status_matchers.h"
#include "services/common/testing/step_builder.h"
#include "tests/conformance/backend.h"

namespace tandem::conformance {

using testing::PlanRunner;
using testing::RunLimits;
using testing::StepBuilder;

// Bound on the relative error, in norm, of a result with `roundings` roundings behind it: errors
// are independent and a stage hands them on with a gain of order one (2 allows for the worst row),
// plus what sums of `terms` float32 products add.
inline double NormBound(double epsilon, double roundings, double terms = 1024) {
  return 2.0 * epsilon * std::sqrt(roundings) +
         4.0 * std::sqrt(terms) * testing::kEpsilonF32 * std::sqrt(roundings);
}
// Roundings in a decoder layer: weights, inputs and outputs of four products and of attention.
inline constexpr double kRoundingsPerLayer = 13;

// One worker serves all the tests of an executable, so that each Load replaces a model.
class WorkerSuite : public ::testing::Test {
 protected:
  void SetUp() override;

  Worker& worker() const;
  double epsilon() const { return BackendUnderTest().epsilon; }
  // With weights of that format.
  double EpsilonWith(DType dtype) const;
  bool Offers(StageKind kind) const;
  bool OffersEverything() const;
  // Whether the worker's description says it can run (its stages of) such a model.
  bool Takes(const ModelConfig& config, DType dtype) const;

  // Every stage the worker offers as a segment of its own, everything through the exchange region.
  absl::StatusOr<std::unique_ptr<PlanRunner>> RunStages(std::shared_ptr<const WeightSet> weights,
                                                        const RunLimits& limits) const;
  // The whole model: one segment on the worker if it offers everything, otherwise planned beside
  // a reference worker.
  absl::StatusOr<std::unique_ptr<PlanRunner>> RunWhole(std::shared_ptr<const WeightSet> weights,
                                                       const RunLimits& limits);

 private:
  std::unique_ptr<reference::ReferenceWorker> companion_;
};

// The same for every awkward shape.
class WorkerShapeSuite : public WorkerSuite,
                         public ::testing::WithParamInterface<testing::NamedConfig> {
 protected:
  const ModelConfig& config() const { return GetParam().config; }
  // A worker may refuse shapes in which no dim is a multiple of 32; it must compute those that it
  // accepts.
  bool IsDeclined(const absl::Status& status) const {
    return status.code() == absl::StatusCode::kFailedPrecondition && config().hidden_dim % 32 != 0;
  }
};

// Tokens that differ between seeds.
std::vector<uint32_t> MakeTokens(const ModelConfig& config, uint32_t n, uint32_t seed = 1);

// Feeds one sequence in chunks; logits after every token, [n, vocab_size].
absl::StatusOr<std::vector<float>> LogitsOfSequence(PlanRunner& runner,
                                                    const std::vector<uint32_t>& tokens,
                                                    uint32_t chunk);

}  // namespace tandem::conformance

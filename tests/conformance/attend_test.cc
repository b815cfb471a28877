// Attend alone over a paged KV cache: sequences that grow by chunks and by single rows, together.
#include <algorithm>
#include <cmath>
#include <random>

#include "services/common/reference/ops.h"
#include "services/common/reference/stages.h"
#include "tests/conformance/worker_suite.h"

namespace tandem::conformance {
namespace {

// Rows that each sequence adds in one step; 0: none.
using StepRows = std::vector<uint32_t>;

struct Scenario {
  std::string name;
  uint32_t block_tokens;
  std::vector<StepRows> steps;
};

std::vector<StepRows> Repeat(StepRows step, int times) {
  return std::vector<StepRows>(static_cast<size_t>(times), std::move(step));
}

std::vector<StepRows> Join(std::initializer_list<std::vector<StepRows>> parts) {
  std::vector<StepRows> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

std::vector<Scenario> Scenarios() {
  return {
      {"LengthsAroundABlock", 16, Join({{{15, 16, 17}}, Repeat({1, 1, 1}, 3)})},
      {"OneRowAtATime", 16, Repeat({1}, 50)},
      {"ChunksBesideSingleRows",
       16,
       {{20}, {1, 33}, {1, 7, 5}, {1, 1, 31, 2}, {1, 13, 1, 1}, {0, 1, 1, 16}}},
      // Far past every window: blocks before it are given back and reused by the others.
      {"BlocksBeforeTheWindowAreGone", 16,
       Join({{{61}}, Repeat({1, 16}, 6), {{40, 1}}, Repeat({1, 1, 1, 1, 1, 1, 1, 1}, 5)})},
      {"SmallBlocks", 8, Join({{{7, 8, 9}}, Repeat({5, 1, 8}, 6)})},
      {"LargeBlocks", 32, Join({{{31, 33}}, Repeat({1, 32}, 3)})},
  };
}

struct AttendCase {
  testing::SmallModel model;
  Scenario scenario;
  DType kv_dtype = DType::kF16;
};

std::vector<AttendCase> Cases() {
  std::vector<AttendCase> cases;
  for (const Scenario& scenario : Scenarios()) {
    for (const uint32_t head_dim : {64u, 128u, 256u}) {
      for (const uint32_t ratio : {1u, 2u, 4u, 8u}) {
        const uint32_t num_kv_heads = ratio > 2 ? 1 : 3;
        cases.push_back({{.num_layers = 2,  // layer 0 has a window, layer 1 is global
                          .num_heads = num_kv_heads * ratio,
                          .num_kv_heads = num_kv_heads,
                          .head_dim = head_dim,
                          .sliding_window = 11 + 6 * ratio},
                         scenario});
      }
    }
  }
  const size_t num_float16 = cases.size();
  for (size_t i = 0; i < num_float16; i += 5) {
    cases.push_back(cases[i]);
    cases.back().kv_dtype = DType::kQ8_0;
  }
  return cases;
}

class AttendTest : public WorkerSuite, public ::testing::WithParamInterface<AttendCase> {
 protected:
  void SetUp() override {
    WorkerSuite::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    config_ = testing::MakeConfig(GetParam().model);
    if (!Offers(StageKind::kAttend)) GTEST_SKIP() << "no Attend";
    if (!Takes(config_, DType::kBf16)) GTEST_SKIP() << "head size not offered";
    const std::vector<DType>& kv_dtypes = worker().description().kv_dtypes;
    if (GetParam().kv_dtype != DType::kF16 &&
        std::ranges::find(kv_dtypes, GetParam().kv_dtype) == kv_dtypes.end()) {
      GTEST_SKIP() << "KV cache in float16 alone";
    }
    std::vector<Segment> segments;
    for (uint32_t layer = 0; layer < config_.num_layers; ++layer) {
      segments.push_back(testing::SingleStage({StageKind::kAttend, layer}, config_));
    }
    ASSERT_OK_AND_ASSIGN(
        runner_, PlanRunner::Create(testing::RandomWeightSet(config_), {&worker()}, segments,
                                    {.block_tokens = GetParam().scenario.block_tokens,
                                     .kv_dtype = GetParam().kv_dtype}));
  }

  std::vector<float> RandomHalves(size_t n) {
    std::normal_distribution<float> normal;
    std::vector<float> values(n);
    for (float& value : values) value = normal(random_);
    reference::RoundToHalf(values);
    return values;
  }

  // k or v that the cache holds exactly: for q8_0 whole quanta; every block of 32 begins
  // with 127.
  std::vector<float> RandomVectors(size_t n) {
    std::vector<float> values = RandomHalves(n);
    if (GetParam().kv_dtype == DType::kF16) return values;
    for (size_t i = 0; i < n; ++i) {
      const float quanta = std::clamp(std::round(values[i] * 32), -127.0f, 127.0f);
      values[i] = (i % 32 == 0 ? std::copysign(127.0f, quanta) : quanta) / 32;
    }
    return values;
  }

  // Keys and values of one sequence in one layer, by position.
  struct History {
    std::vector<std::vector<float>> keys, values;
  };

  // Sets `expected` to the attention of the rows in `step` after appending their k and v.
  void Reference(const StepBatch& step, const std::vector<uint32_t>& ids, uint32_t layer,
                 const reference::Activations& in, std::vector<float>& expected) {
    const size_t q_dim = config_.q_dim(), kv_dim = config_.kv_dim();
    expected.resize(step.rows.size() * q_dim);
    for (size_t r = 0; r < step.rows.size(); ++r) {
      const RowEntry& row = step.rows[r];
      History& history = histories_[{ids[row.sequence], layer}];
      const auto copy = [&](const std::vector<float>& from) {
        return std::vector<float>(from.begin() + r * kv_dim, from.begin() + (r + 1) * kv_dim);
      };
      history.keys.push_back(copy(in.k));
      history.values.push_back(copy(in.v));
      std::vector<const float*> keys, values;
      for (uint32_t p = reference::FirstVisible(config_, layer, row.position); p <= row.position;
           ++p) {
        keys.push_back(history.keys[p].data());
        values.push_back(history.values[p].data());
      }
      reference::AttendRow(config_, std::span(in.q).subspan(r * q_dim, q_dim), keys, values,
                           std::span(expected).subspan(r * q_dim, q_dim));
    }
  }

  ModelConfig config_;
  std::unique_ptr<PlanRunner> runner_;
  std::mt19937 random_{7};
  std::map<std::pair<uint32_t, uint32_t>, History> histories_;  // by sequence and layer
};

TEST_P(AttendTest, MatchesTheReference) {
  StepBuilder steps(runner_->limits());
  std::vector<uint32_t> sequences;
  for (size_t s = 0; s < GetParam().scenario.steps.size(); ++s) {
    SCOPED_TRACE(::testing::Message() << "step " << s);
    const StepRows& rows = GetParam().scenario.steps[s];
    while (sequences.size() < rows.size()) sequences.push_back(steps.AddSequence());
    steps.Begin();
    std::vector<uint32_t> ids;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (rows[i] == 0) continue;
      steps.AddRows(sequences[i], std::vector<uint32_t>(rows[i], 3));
      ids.push_back(sequences[i]);
    }
    const StepBatch batch = steps.batch();
    const uint32_t num_rows = steps.num_rows();
    runner_->FillGuards();
    ASSERT_OK(runner_->WriteAndCheckStep(batch));
    for (const Segment& segment : runner_->segments()) {
      reference::Activations in;
      in.q = RandomHalves(size_t{num_rows} * config_.q_dim());
      in.k = RandomVectors(size_t{num_rows} * config_.kv_dim());
      in.v = RandomVectors(size_t{num_rows} * config_.kv_dim());
      std::vector<float> expected;
      Reference(batch, ids, segment.index, in, expected);
      runner_->WritePort(Port::kQ, in.q);
      runner_->WritePort(Port::kK, in.k);
      runner_->WritePort(Port::kV, in.v);
      ASSERT_OK(runner_->RunSegment(segment.index));
      // Values are Gaussian: 5 bounds them.  Probabilities and their scores, values and results
      // may each be rounded once.
      ASSERT_TRUE(testing::IsNear(runner_->ReadPort(Port::kAttention, num_rows), expected,
                                  4 * epsilon() * 5.0))
          << "layer " << segment.index;
    }
    ASSERT_TRUE(runner_->GuardsIntact());
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, AttendTest, ::testing::ValuesIn(Cases()), [](const auto& test) {
  const testing::SmallModel& model = test.param.model;
  return test.param.scenario.name + "Head" + std::to_string(model.head_dim) + "Ratio" +
         std::to_string(model.num_heads / model.num_kv_heads) +
         (test.param.kv_dtype == DType::kQ8_0 ? "Q8" : "");
});

}  // namespace
}  // namespace tandem::conformance

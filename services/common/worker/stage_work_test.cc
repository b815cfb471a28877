// Compares the closed forms with counting row by row and position by position.
#include "services/common/worker/stage_work.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "services/common/testing/model_configs.h"
#include "services/common/testing/random_weights.h"

namespace tandem {
namespace {

TEST(StageWorkTest, PositionsSeenAreThoseThatCountingFinds) {
  for (const uint64_t window : {0, 1, 2, 7, 16, 17}) {
    for (uint64_t first = 0; first < 40; ++first) {
      for (const uint64_t num_rows : {1, 2, 5, 16, 17, 33}) {
        std::set<uint64_t> earlier;
        uint64_t pairs = 0;
        for (uint64_t p = first; p < first + num_rows; ++p) {
          for (uint64_t seen = 0; seen <= p; ++seen) {
            if (window != 0 && p - seen >= window) continue;
            ++pairs;
            if (seen < first) earlier.insert(seen);
          }
        }
        const SeenPositions got = PositionsSeen(first, num_rows, window);
        EXPECT_EQ(got.earlier, earlier.size()) << first << " " << num_rows << " " << window;
        EXPECT_EQ(got.pairs, pairs) << first << " " << num_rows << " " << window;
      }
    }
  }
}

struct Sequence {
  uint32_t first_position, num_rows;
};

// A step of rows, sequences and outputs (the last row of each sequence) only.
struct Step {
  explicit Step(const std::vector<Sequence>& all) {
    for (const Sequence& sequence : all) {
      sequences.push_back({.first_row = static_cast<uint32_t>(rows.size()),
                           .num_rows = sequence.num_rows,
                           .table_offset = {}});
      for (uint32_t r = 0; r < sequence.num_rows; ++r) {
        rows.push_back({.position = sequence.first_position + r});
      }
      outputs.push_back({.row = static_cast<uint32_t>(rows.size()) - 1});
    }
    batch.rows = rows;
    batch.sequences = sequences;
    batch.outputs = outputs;
  }
  std::vector<RowEntry> rows;
  std::vector<SequenceEntry> sequences;
  std::vector<OutputEntry> outputs;
  StepBatch batch;
};

uint64_t TensorBytes(const WeightSet& weights, WeightRole role, uint32_t layer) {
  uint64_t bytes = 0;
  const PackedTensor& tensor = *weights.Find(role, layer);
  for (const Shard& shard : tensor.shards) bytes += ShardBytes(tensor, shard);
  return bytes;
}

TEST(StageWorkTest, AWholeModelsStepIsTheSumOverItsTensorsRowsAndPositions) {
  const auto weights = testing::RandomWeightSet(testing::MakeConfig({.num_layers = 7}));
  const ModelConfig& c = weights->config();
  const Segment whole{.first_ordinal = 0, .last_ordinal = NumStages(c.num_layers) - 1};
  const Step step({{0, 13}, {5, 1}, {c.sliding_window + 3, 4}, {c.sliding_window - 1, 1}});
  const uint64_t num_rows = 19, num_outputs = 4;
  const SegmentWork work = SegmentCosts(whole, *weights, DType::kF16).Of(step.batch);

  uint64_t qkv_bytes = 0, qkv_operations = 0, ffn_operations = 0, kv_bytes = 0, pairs = 0;
  for (uint32_t layer = 0; layer < c.num_layers; ++layer) {
    for (const WeightRole role :
         {WeightRole::kInputNorm, WeightRole::kQkv, WeightRole::kQNorm, WeightRole::kKNorm}) {
      qkv_bytes += TensorBytes(*weights, role, layer);
    }
    qkv_bytes += num_rows * (4 * c.hidden_dim + 2 * (c.q_dim() + 2 * c.kv_dim()));
    qkv_operations += num_rows * 2 * c.hidden_dim * (c.q_dim() + 2 * c.kv_dim());
    const uint64_t ffn_rows = layer + 1 < c.num_layers ? num_rows : num_outputs;
    ffn_operations += ffn_rows * 2 * 3 * c.hidden_dim * c.ffn_dim;
    // In and out, and the rows' own k and v into the cache.
    kv_bytes += num_rows * (2 * c.q_dim() + 4 * c.kv_dim() + 4 * c.kv_dim() + 2 * c.q_dim());
    for (const SequenceEntry& sequence : step.sequences) {
      const uint32_t first = step.rows[sequence.first_row].position;
      std::set<uint32_t> earlier;
      for (uint32_t p = first; p < first + sequence.num_rows; ++p) {
        for (uint32_t seen = 0; seen <= p; ++seen) {
          if (!c.is_global(layer) && p - seen >= c.sliding_window) continue;
          ++pairs;
          if (seen < first) earlier.insert(seen);
        }
      }
      kv_bytes += earlier.size() * 2 * 2 * c.kv_dim();  // k and v in float16
    }
  }
  const auto of = [&work](StageKind kind) { return work[static_cast<int>(kind)]; };
  EXPECT_EQ(of(StageKind::kQkv).bytes, qkv_bytes);
  EXPECT_EQ(of(StageKind::kQkv).operations, qkv_operations);
  EXPECT_EQ(of(StageKind::kFfn).operations, ffn_operations);
  EXPECT_EQ(of(StageKind::kOut).operations, num_rows * c.num_layers * 2 * c.hidden_dim * c.q_dim());
  EXPECT_EQ(of(StageKind::kAttend).bytes, kv_bytes);
  EXPECT_EQ(of(StageKind::kAttend).operations, pairs * 4 * c.q_dim());
  EXPECT_EQ(of(StageKind::kHead).operations, num_outputs * 2 * c.hidden_dim * c.vocab_size);
  EXPECT_EQ(of(StageKind::kEmbed).operations, 0u);
  EXPECT_LT(of(StageKind::kEmbed).bytes, num_rows * (4 + 5) * c.hidden_dim) << "rows, no table";
}

TEST(StageWorkTest, AStepThatOnlyPoolsNeedsEveryRowOfTheLastLayerAndNoneOfTheHead) {
  const auto weights = testing::RandomWeightSet(testing::MakeConfig({.num_layers = 2}));
  const ModelConfig& c = weights->config();
  Step step({{0, 13}, {5, 3}});
  const std::vector<uint32_t> pooled = {1};
  step.batch.outputs = {};
  step.batch.pooled = pooled;
  const SegmentCosts whole({.last_ordinal = NumStages(c.num_layers) - 1}, *weights, DType::kF16);
  const SegmentWork work = whole.Of(step.batch);
  const StageWork head = work[static_cast<int>(StageKind::kHead)];
  EXPECT_EQ(head.bytes, 3 * 4 * c.hidden_dim);
  EXPECT_EQ(head.operations, 0u);
  EXPECT_EQ(work[static_cast<int>(StageKind::kFfn)].operations,
            2 * 16 * 2 * 3 * c.hidden_dim * c.ffn_dim);
}

TEST(StageWorkTest, SegmentsOfAModelAddUpToIt) {
  const auto weights = testing::RandomWeightSet(testing::MakeConfig({.num_layers = 3}));
  const uint32_t last = NumStages(weights->config().num_layers) - 1;
  const Step step({{3, 5}, {40, 1}});
  const SegmentWork whole =
      SegmentCosts({.first_ordinal = 0, .last_ordinal = last}, *weights, DType::kF16)
          .Of(step.batch);
  SegmentWork sum;
  for (uint32_t first = 0; first <= last; first += 3) {
    const Segment part{.first_ordinal = first, .last_ordinal = std::min(first + 2, last)};
    const SegmentWork work = SegmentCosts(part, *weights, DType::kF16).Of(step.batch);
    for (int kind = 0; kind < kNumStageKinds; ++kind) {
      sum[kind].bytes += work[kind].bytes;
      sum[kind].operations += work[kind].operations;
    }
  }
  for (int kind = 0; kind < kNumStageKinds; ++kind) {
    EXPECT_EQ(sum[kind].bytes, whole[kind].bytes) << kind;
    EXPECT_EQ(sum[kind].operations, whole[kind].operations) << kind;
  }
}

TEST(StageWorkTest, ACacheOfFewerBytesTakesFewer) {
  const auto weights = testing::RandomWeightSet(testing::MakeConfig({.num_layers = 2}));
  const Segment attend{.first_ordinal = 2, .last_ordinal = 2};
  const Step near({{0, 1}}), far({{20, 1}});
  const auto bytes = [&](const Step& step, DType dtype) {
    const SegmentWork work = SegmentCosts(attend, *weights, dtype).Of(step.batch);
    return work[static_cast<int>(StageKind::kAttend)].bytes;
  };
  const uint64_t f16 = bytes(far, DType::kF16) - bytes(near, DType::kF16);
  const uint64_t q8_0 = bytes(far, DType::kQ8_0) - bytes(near, DType::kQ8_0);
  EXPECT_EQ(f16, 20 * 2 * 2 * weights->config().kv_dim());
  EXPECT_EQ(q8_0 * 32, f16 * 17);
}

TEST(StageWorkTest, AStepWithoutOutputsLeavesTheHeadAndTheLastFfnAlone) {
  const auto weights = testing::RandomWeightSet(testing::MakeConfig({.num_layers = 2}));
  const ModelConfig& c = weights->config();
  const uint32_t last = NumStages(c.num_layers) - 1;
  Step step({{0, 5}});
  step.batch.outputs = {};
  const SegmentWork work =
      SegmentCosts({.first_ordinal = 0, .last_ordinal = last}, *weights, DType::kF16)
          .Of(step.batch);
  EXPECT_EQ(work[static_cast<int>(StageKind::kHead)].bytes, 0u);
  EXPECT_EQ(work[static_cast<int>(StageKind::kHead)].operations, 0u);
  EXPECT_EQ(work[static_cast<int>(StageKind::kFfn)].operations,
            5 * 2 * 3 * c.hidden_dim * c.ffn_dim);
}

}  // namespace
}  // namespace tandem

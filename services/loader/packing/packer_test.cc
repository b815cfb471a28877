#include "services/loader/packing/packer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "services/loader/packing/fake_model_source.h"
#include "services/loader/packing/memory_budget.h"
#include "services/loader/packing/packing_check.h"

namespace tandem::loader {
namespace {

TEST(PackerTest, EveryFormatKeepsEveryNumber) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    SCOPED_TRACE(std::string(Traits(dtype).name));
    const FakeModelSource source(FakeConfig(), true, [=](WeightRole, SourcePart) { return dtype; });
    ExpectPacksExactly(source, {});
  }
}

TEST(PackerTest, MatricesCutIntoManySmallRegionsKeepEveryNumber) {
  for (const DType dtype : AllDTypes()) {
    if (dtype == DType::kF32) continue;  // a tile of 512 columns takes twice the limit

    SCOPED_TRACE(std::string(Traits(dtype).name));
    const FakeModelSource source(FakeConfig(), false,
                                 [=](WeightRole, SourcePart) { return dtype; });
    ExpectPacksExactly(source, {.max_region_bytes = 32768, .num_threads = 3});
  }
}

TEST(PackerTest, TheLastTileIsFilledUpWithZeros) {
  for (const DType dtype : AllDTypes()) {
    const FakeModelSource source(FakeConfig(), false,
                                 [=](WeightRole, SourcePart) { return dtype; });
    auto packed = PackModel(source, {}, nullptr);
    ASSERT_TRUE(packed.ok()) << packed.status();
    const auto weights = MapPacked(*std::move(packed), source);
    ASSERT_NE(weights, nullptr);
    const PackedTensor& tensor = *weights->Find(WeightRole::kEmbedding);
    ASSERT_EQ(tensor.shards.size(), 1u);
    const std::byte* shard = weights->ShardData(tensor.shards[0]);
    for (const Plane& plane : PlanesOf(dtype, tensor.shape.rows, tensor.shape.cols)) {
      for (uint64_t row = tensor.shape.rows; row % kTileRows != 0; ++row) {
        for (uint64_t i = 0; i < plane.pieces_per_row; ++i) {
          const std::byte* piece = shard + plane.RowOffset(row) + i * plane.piece.stride();
          EXPECT_TRUE(std::all_of(piece, piece + plane.piece.bytes, [](std::byte b) {
            return b == std::byte{0};
          })) << row;
        }
      }
    }
  }
}

std::vector<DType> FormatsOf(const WeightSet& weights, WeightRole role) {
  std::vector<DType> formats;
  for (const Shard& shard : weights.Find(role, 1)->shards) formats.push_back(shard.dtype);
  return formats;
}

TEST(PackerTest, PartsOfDifferingBlockFormatsKeepThem) {
  const FakeModelSource source(FakeConfig(), false, [](WeightRole role, SourcePart part) {
    if (part == SourcePart::kV) return DType::kQ6_K;
    return role == WeightRole::kQkv ? DType::kQ4_K : DType::kQ5_0;
  });
  auto packed = PackModel(source, {}, nullptr);
  ASSERT_TRUE(packed.ok()) << packed.status();
  const auto weights = MapPacked(*std::move(packed), source);
  ASSERT_NE(weights, nullptr);
  EXPECT_EQ(FormatsOf(*weights, WeightRole::kQkv), (std::vector{DType::kQ4_K, DType::kQ6_K}));
  EXPECT_EQ(weights->Find(WeightRole::kQkv, 1)->shards[1].first_row, 256u + 128);
  EXPECT_EQ(FormatsOf(*weights, WeightRole::kGateUp), std::vector{DType::kQ5_0});
  ExpectPackedEqualsSource(*weights, source);
}

TEST(PackerTest, OtherPartsOfDifferingFormatsBecomeF16) {
  const FakeModelSource source(FakeConfig(), false, [](WeightRole role, SourcePart part) {
    if (part == SourcePart::kV) return DType::kBf16;
    if (part == SourcePart::kUp) return DType::kQ8_0;
    return role == WeightRole::kEmbedding ? DType::kQ6_K : DType::kQ4_0;
  });
  auto packed = PackModel(source, {}, nullptr);
  ASSERT_TRUE(packed.ok()) << packed.status();
  const auto weights = MapPacked(*std::move(packed), source);
  ASSERT_NE(weights, nullptr);
  EXPECT_EQ(FormatsOf(*weights, WeightRole::kQkv), std::vector{DType::kF16});
  EXPECT_EQ(FormatsOf(*weights, WeightRole::kGateUp), std::vector{DType::kF16});
  EXPECT_EQ(FormatsOf(*weights, WeightRole::kDown), std::vector{DType::kQ4_0});
  EXPECT_EQ(FormatsOf(*weights, WeightRole::kInputNorm), std::vector{DType::kF32});
  ExpectPackedEqualsSource(*weights, source);
}

TEST(PackerTest, NumbersBeyondF16AreRefusedAndNotMadeInfinite) {
  FakeModelSource source(FakeConfig(), false, [](WeightRole, SourcePart part) {
    return part == SourcePart::kUp ? DType::kBf16 : DType::kF32;
  });
  for (size_t i = 0; i < source.tensors().size(); ++i) {
    if (source.tensors()[i].part != SourcePart::kGate) continue;
    const float large = 65520.0f;
    std::memcpy(source.mutable_data(i).data() + 40, &large, sizeof(large));
  }
  const auto status = PackModel(source, {}, nullptr).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
}

TEST(PackerTest, ReadErrorsEndThePackingWithTheirStatus) {
  FakeModelSource source(FakeConfig(), false, [](WeightRole, SourcePart) { return DType::kQ8_0; });
  source.read_error = absl::DataLossError("the file was cut short");
  EXPECT_EQ(PackModel(source, {}, nullptr).status(), source.read_error);
}

// Blocks every read until progress has been reported once, so that the report is sure to come.
class SlowSource : public FakeModelSource {
 public:
  using FakeModelSource::FakeModelSource;
  absl::Status Read(const SourceTensor& tensor, uint64_t offset,
                    std::span<std::byte> out) const override {
    mutex.LockWhen(absl::Condition(&released));
    mutex.Unlock();
    return FakeModelSource::Read(tensor, offset, out);
  }
  mutable absl::Mutex mutex;
  bool released ABSL_GUARDED_BY(mutex) = false;
};

TEST(PackerTest, ProgressEndsAtTheTotalAndFalseStopsTheWork) {
  for (const bool stop : {false, true}) {
    SlowSource source(FakeConfig(), false, [](WeightRole, SourcePart) { return DType::kQ8_0; });
    PackProgress last;
    const auto packed = PackModel(source, {}, [&](const PackProgress& progress) {
      EXPECT_GE(progress.done_bytes, last.done_bytes);
      last = progress;
      absl::MutexLock lock(&source.mutex);
      source.released = true;
      return !stop;
    });
    if (stop) {
      EXPECT_EQ(packed.status().code(), absl::StatusCode::kCancelled);
    } else {
      ASSERT_TRUE(packed.ok()) << packed.status();
      EXPECT_EQ(last.done_bytes, last.total_bytes);
      EXPECT_EQ(last.total_bytes, packed->source_bytes);
    }
  }
}

TEST(MemoryBudgetTest, MoreThanTheMachineHasIsRefusedWithTheAmounts) {
  EXPECT_GT(AvailableMemoryBytes(), 0u);
  EXPECT_TRUE(CheckMemoryBudget(1).ok());
  EXPECT_EQ(CheckMemoryBudget(std::numeric_limits<uint64_t>::max()).code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace tandem::loader

#include "services/gpu_worker/kernels/tuning_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "services/common/testing/temporary_directory.h"
#include "services/gpu_worker/kernels/attention_launches.h"
#include "services/gpu_worker/kernels/shipped_tables.h"

namespace tandem::gpu {
namespace {

using ::testing::HasSubstr;

// A card with everything: byte dot products and matrix units.
vulkan::DeviceInfo Card(const char* name) {
  vulkan::DeviceInfo info;
  info.name = name;
  info.driver = "driver 7";
  info.type = VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
  info.subgroup_size = 32;
  info.max_workgroup_invocations = 1024;
  info.fast_byte_dots = true;
  return info;
}
Tuning TuningOf(const vulkan::DeviceInfo& info) {
  Tuning tuning = TuningFor(info);
  tuning.matrix.fragments.path = MatrixPath::kQuads;
  return tuning;
}
TuningTable TableFor(const vulkan::DeviceInfo& info) {
  return {.key = MakeTuningKey(info, "qkv q4_0 8192x5376"),
          .made_by = "tandem tune",
          .settings = {{"matvec_rounds", 2}, {"tile1_groups", 132}},
          .trials = {{"matvec_rounds", {"r1", "d8@1023"}, 2, {{2, 0.9}, {3, 1.0}}}}};
}

class TuningTableTest : public ::testing::Test {
 protected:
  const vulkan::DeviceInfo info_ = Card("Card 9");
  const TuningTable table_ = TableFor(info_);
  const TemporaryDirectory temporary_;
  const std::string folder_ = temporary_.path();
};

TEST_F(TuningTableTest, IsReadBackAndChangesWhatItNamesAlone) {
  ASSERT_TRUE(WriteTuningTable(folder_ + "/made", table_).ok());
  const auto read = ReadTuningTable(folder_ + "/made", table_.key);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(ToJson(*read), ToJson(table_));
  Tuning tuning = TuningOf(info_);
  const Tuning before = tuning;
  ASSERT_TRUE(ApplyTuningTable(*read, table_.key, info_, tuning).ok());
  EXPECT_NE(before.matvec_rounds, 2u) << "nothing to see";
  EXPECT_EQ(tuning.matvec_rounds, 2u);
  EXPECT_EQ(tuning.matrix.tiles[1].groups, 132u);
  EXPECT_EQ(tuning.matrix.tiles[0].groups, before.matrix.tiles[0].groups);
  EXPECT_EQ(tuning.matvec_teams, before.matvec_teams);
}

TEST_F(TuningTableTest, AnythingElseHasAFileOfItsOwn) {
  ASSERT_TRUE(WriteTuningTable(folder_, table_).ok());
  for (std::string TuningKey::*part :
       {&TuningKey::device, &TuningKey::driver, &TuningKey::kernels, &TuningKey::shapes}) {
    TuningKey other = table_.key;
    other.*part += "'";
    EXPECT_EQ(ReadTuningTable(folder_, other).status().code(), absl::StatusCode::kNotFound);
    // Renamed by somebody, it is refused all the same.
    Tuning tuning = TuningOf(info_);
    const absl::Status status = ApplyTuningTable(table_, other, info_, tuning);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr(other.*part));
    EXPECT_EQ(tuning.matvec_rounds, TuningOf(info_).matvec_rounds);
  }
}

TEST_F(TuningTableTest, ValuesThatNoKernelTakesAreRefusedByName) {
  const auto refusal = [&](const char* setting, uint32_t value) {
    TuningTable table = table_;
    table.settings[setting] = value;
    Tuning tuning = TuningOf(info_);
    const absl::Status status = ApplyTuningTable(table, table_.key, info_, tuning);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(tuning.matvec_rounds, TuningOf(info_).matvec_rounds) << "all or nothing";
    return std::string(status.message());
  };
  EXPECT_EQ(refusal("matvec_teams", 7), "matvec_teams is 7, which no kernel takes here");
  EXPECT_EQ(refusal("tile0_columns", 0), "tile0_columns is 0, which no kernel takes here");
  EXPECT_EQ(refusal("speed", 11), "there is no setting speed here");
}

TEST_F(TuningTableTest, DamagedFilesAreRefusedByName) {
  const std::string good = ToJson(table_);
  for (size_t length = 0; length + 2 < good.size(); length += 7) {
    const auto parsed = ParseTuningTable(good.substr(0, length), "t.json");
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << length;
  }
  for (const char* bad : {"[]", "{}", "{\"format\": 1}", "{\"format\": \"2\"}", "3"}) {
    EXPECT_THAT(std::string(ParseTuningTable(bad, "t.json").status().message()),
                HasSubstr("t.json"));
  }
  std::filesystem::create_directories(folder_);
  std::ofstream(folder_ + "/" + table_.key.FileName()) << std::string(2 << 20, ' ');
  EXPECT_THAT(std::string(ReadTuningTable(folder_, table_.key).status().message()),
              HasSubstr("too long"));
}

TEST_F(TuningTableTest, WhatHoldsIsAlwaysAmongTheChoices) {
  vulkan::DeviceInfo software = Card("llvmpipe");
  software.type = VK_PHYSICAL_DEVICE_TYPE_CPU;
  software.subgroup_size = 8;
  for (const vulkan::DeviceInfo& info :
       {info_, software, Card("NVIDIA H200"), Card("AMD Radeon 780M (RADV PHOENIX)")}) {
    Tuning tuning = TuningOf(info);
    if (info.name == "llvmpipe") tuning.matrix.fragments.path = MatrixPath::kNone;
    const std::vector<TuningSetting> settings = TuningSettings(info, tuning);
    EXPECT_FALSE(settings.empty());
    for (const TuningSetting& setting : settings) {
      EXPECT_THAT(setting.values, ::testing::Contains(setting.of(tuning))) << setting.name;
      EXPECT_GT(setting.values.size(), 1u) << setting.name;
      EXPECT_FALSE(setting.cases.empty()) << setting.name;
    }
  }
}

TEST_F(TuningTableTest, OffersWhatThePromptsKernelHas) {
  Tuning tuning = TuningOf(info_);
  const auto tiled = [&] {
    std::vector<std::string> names;
    for (const TuningSetting& setting : TuningSettings(info_, tuning)) {
      if (setting.name.starts_with("tiled")) names.push_back(setting.name);
    }
    return names;
  };
  EXPECT_THAT(tiled(), ::testing::ElementsAre("tiled_row_blocks", "tiled_ahead"));
  tuning.matrix.fragments.sums_in_quads = true;
  EXPECT_THAT(tiled(), ::testing::ElementsAre("tiled_quads"));
  tuning.matrix.fragments = {.path = MatrixPath::kRows, .sums_in_columns = true};
  EXPECT_THAT(tiled(), ::testing::ElementsAre("tiled_rows", "tiled_part_dims", "tiled_ahead"));
}

// Buffers are made for the tiles of a step before settings are measured, and taken with them.
TEST_F(TuningTableTest, NoSettingChangesHowAStepIsCutIntoTiles) {
  constexpr FragmentLayout kLayouts[] = {{MatrixPath::kQuads},
                                         {.path = MatrixPath::kQuads, .sums_in_quads = true},
                                         {.path = MatrixPath::kRows, .sums_in_columns = true}};
  for (const FragmentLayout& layout : kLayouts) {
    Tuning tuning = TuningOf(info_);
    tuning.matrix.fragments = layout;
    tuning.max_shared_bytes = 48 << 10;
    for (const TuningSetting& setting : TuningSettings(info_, tuning)) {
      for (const uint32_t value : setting.values) {
        Tuning changed = tuning;
        setting.of(changed) = value;
        for (const uint32_t head_dim : {64u, 72u, 128u, 256u}) {
          EXPECT_EQ(MakeTiledShape(changed, 8, 4, head_dim).tile_rows,
                    MakeTiledShape(tuning, 8, 4, head_dim).tile_rows)
              << setting.name << " " << value << " heads of " << head_dim;
        }
      }
    }
  }
}

TEST(ShippedTableTest, DevicesAreKnownByName) {
  EXPECT_EQ(FindShippedTable(Card("NVIDIA H200")).name, "NVIDIA Hopper");
  EXPECT_EQ(FindShippedTable(Card("NVIDIA GeForce RTX 4090")).name, "");
  const ShippedTable rdna3 = FindShippedTable(Card("AMD Radeon 780M Graphics (RADV GFX1103_R1)"));
  EXPECT_EQ(rdna3.name, "RDNA 3 (untested)");
  EXPECT_FALSE(rdna3.measured) << "a first start measures";
  const Tuning tuning = TuningFor(Card("AMD Radeon RX 7900 XTX (RADV NAVI31)"));
  EXPECT_EQ(tuning.matrix.tiles.back().max_rows, ~0u);
  EXPECT_NE(tuning.matvec_full_teams, TuningFor(Card("Card 9")).matvec_full_teams);
}

TEST(ShapesOfTest, NamesEveryShapeOnce) {
  const auto matrix = [](WeightRole role, uint32_t layer, DType dtype) {
    return PackedTensor{.role = role,
                        .layer_idx = layer,
                        .shape = {64, 32},
                        .shards = {{.num_rows = 64, .dtype = dtype}}};
  };
  const PackedTensor tensors[] = {
      matrix(WeightRole::kQkv, 0, DType::kQ4_K), matrix(WeightRole::kInputNorm, 0, DType::kF32),
      matrix(WeightRole::kQkv, 1, DType::kQ4_K), matrix(WeightRole::kQkv, 2, DType::kQ6_K)};
  EXPECT_EQ(ShapesOf({&tensors[0], &tensors[1], &tensors[2], &tensors[3]}),
            "qkv q4_k 64x32, qkv q6_k 64x32");
}

}  // namespace
}  // namespace tandem::gpu

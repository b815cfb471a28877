#include "services/npu_worker/attention/step_encoder.h"

#include <gtest/gtest.h>

#include <cstring>

#include "services/common/testing/model_configs.h"

namespace tandem::npu {
namespace {

constexpr StepLimits kLimits = {.max_rows = 8,
                                .max_sequences = 3,
                                .max_outputs = 8,
                                .max_table_len = 16,
                                .context_len = 256,
                                .block_tokens = 16};

TEST(StepEncoderTest, LaysOutSequencesAndTables) {
  const std::vector<RowEntry> rows = {{5, 30, 0}, {6, 31, 0}, {7, 32, 0}, {9, 4, 1}};
  const std::vector<SequenceEntry> sequences = {{0, 3, {0, 3}}, {3, 1, {6, 7}}};
  const std::vector<uint32_t> table = {4, 5, 6, kNoBlock, 1, 2, 7, 0};
  const StepBatch step = {
      {.num_rows = 4, .num_sequences = 2, .table_len = 8}, rows, sequences, {}, table};
  std::vector<std::byte> out(StepDescriptorBytes(kLimits), std::byte{0xEE});
  const EncodedStep encoded = EncodeStep(step, 0, out);
  EXPECT_EQ(encoded.num_positions, 33u);
  ASSERT_EQ(encoded.bytes, sizeof(StepDescriptor) + 2 * sizeof(SequenceDescriptor) + 8 * 4);
  StepDescriptor header;
  std::memcpy(&header, out.data(), sizeof(header));
  EXPECT_EQ(header.magic, kStepDescriptorMagic);
  EXPECT_EQ(header.num_rows, 4u);
  EXPECT_EQ(header.num_sequences, 2u);
  EXPECT_EQ(header.table_len, 8u);
  EXPECT_EQ(header.num_positions, 33u);
  SequenceDescriptor second;
  std::memcpy(&second, out.data() + sizeof(header) + sizeof(second), sizeof(second));
  EXPECT_EQ(second.first_row, 3u);
  EXPECT_EQ(second.num_rows, 1u);
  EXPECT_EQ(second.first_position, 4u);
  EXPECT_EQ(second.table_offset[kGlobalGroup], 6u);
  EXPECT_EQ(second.table_offset[kWindowGroup], 7u);
  EXPECT_EQ(std::memcmp(out.data() + encoded.bytes - 8 * 4, table.data(), 8 * 4), 0);
  EXPECT_EQ(out[encoded.bytes], std::byte{0xEE});
}

TEST(StepEncoderTest, TheFullestStepFitsTheSizeForItsLimits) {
  std::vector<RowEntry> rows(8);
  const std::vector<SequenceEntry> sequences = {{0, 3, {}}, {3, 3, {}}, {6, 2, {}}};
  const std::vector<uint32_t> table(16);
  const StepBatch step = {
      {.num_rows = 8, .num_sequences = 3, .table_len = 16}, rows, sequences, {}, table};
  std::vector<std::byte> out(StepDescriptorBytes(kLimits));
  EXPECT_EQ(EncodeStep(step, 0, out).bytes, out.size());
}

TEST(StepEncoderTest, PicturesAreDescriptorsOfTheirOwn) {
  constexpr uint32_t kPictureRows = 3;
  // The last two rows of a picture, text, a whole picture; then text; then a picture alone.
  std::vector<RowEntry> rows;
  for (uint32_t i = 0; i < 7; ++i) rows.push_back({.position = 41 + i});
  rows.push_back({.position = 9, .sequence = 1});
  for (uint32_t i = 0; i < 3; ++i) rows.push_back({.position = 20 + i, .sequence = 2});
  const std::vector<SequenceEntry> sequences = {{0, 7, {0, 3}}, {7, 1, {6, 7}}, {8, 3, {8, 9}}};
  const std::vector<PictureEntry> pictures = {{0, 2}, {4, 3}, {8, 3}};
  const std::vector<uint32_t> table(16);
  StepBatch step = {{.num_rows = 11, .num_sequences = 3, .table_len = 16, .num_pictures = 3},
                    rows,
                    sequences,
                    {},
                    table};
  step.pictures = pictures;
  StepLimits limits = kLimits;
  limits.max_pictures = 3;
  std::vector<std::byte> out(StepDescriptorBytes(limits));
  const EncodedStep encoded = EncodeStep(step, kPictureRows, out);
  EXPECT_EQ(encoded.num_positions, 48u);
  StepDescriptor header;
  std::memcpy(&header, out.data(), sizeof(header));
  struct Run {
    uint32_t first_row, num_rows, first_position, picture_first, table_offset;
  };
  const std::vector<Run> expected = {{0, 2, 41, 40, 0},
                                     {2, 2, 43, kNoPicture, 0},
                                     {4, 3, 45, 45, 0},
                                     {7, 1, 9, kNoPicture, 6},
                                     {8, 3, 20, 20, 8}};
  ASSERT_EQ(header.num_sequences, expected.size());
  EXPECT_EQ(encoded.bytes, sizeof(header) + expected.size() * sizeof(SequenceDescriptor) + 64);
  for (size_t i = 0; i < expected.size(); ++i) {
    SequenceDescriptor run;
    std::memcpy(&run, out.data() + sizeof(header) + i * sizeof(run), sizeof(run));
    EXPECT_EQ(run.first_row, expected[i].first_row) << i;
    EXPECT_EQ(run.num_rows, expected[i].num_rows) << i;
    EXPECT_EQ(run.first_position, expected[i].first_position) << i;
    EXPECT_EQ(run.picture_first, expected[i].picture_first) << i;
    EXPECT_EQ(run.table_offset[kGlobalGroup], expected[i].table_offset) << i;
  }
}

TEST(StepEncoderTest, LayersCarryTheirGroupWindowAndPlaces) {
  const ModelConfig config = testing::MakeConfig({});  // layer 1 is global
  const ExchangeLayout layout = MakeExchangeLayout(config, kLimits, 2);
  const KvSpec kv = {.block_tokens = 16, .num_blocks = {10, 6}};
  const AttendParameters global = MakeAttendParameters(config, 1, layout, kv, 4096);
  EXPECT_EQ(global.group, kGlobalGroup);
  EXPECT_EQ(global.window, 0u);
  EXPECT_EQ(global.num_blocks, 10u);
  EXPECT_EQ(global.kv_offset, 4096u);
  EXPECT_EQ(global.q_offset, layout.port(Port::kQ).offset);
  EXPECT_EQ(global.attention_offset, layout.port(Port::kAttention).offset);
  const AttendParameters local = MakeAttendParameters(config, 0, layout, kv, 0);
  EXPECT_EQ(local.group, kWindowGroup);
  EXPECT_EQ(local.window, config.sliding_window);
  EXPECT_EQ(local.num_blocks, 6u);
  EXPECT_EQ(local.scale, config.attention_scale);
}

}  // namespace
}  // namespace tandem::npu

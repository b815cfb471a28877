// Sums over the rows of pooled sequences against float64.
#include <cmath>

#include "services/common/testing/compare.h"
#include "services/gpu_worker/kernels/kernel_test_device.h"
#include "services/gpu_worker/kernels/launches.h"

namespace tandem::gpu {
namespace {

class PoolTest : public KernelTest, public ::testing::WithParamInterface<uint32_t> {};

TEST_P(PoolTest, SumsTheRowsOfThePooledSequencesAlone) {
  const uint32_t cols = GetParam();
  constexpr uint32_t kLengths[] = {3, 1, 17, 2, 67};
  const std::vector<uint32_t> pooled = {0, 2, 4};
  // Odd counts of everything before `pooled`.
  const std::vector<uint32_t> table(7);
  const std::vector<OutputEntry> outputs = {{1}, {3}, {20}};
  const std::vector<DrawEntry> draws(3);
  std::vector<RowEntry> rows;
  std::vector<SequenceEntry> sequences;
  for (const uint32_t length : kLengths) {
    sequences.push_back(
        {.first_row = static_cast<uint32_t>(rows.size()), .num_rows = length, .table_offset = {}});
    rows.resize(rows.size() + length);
  }
  StepHeader header;
  header.num_rows = static_cast<uint32_t>(rows.size());
  header.num_sequences = static_cast<uint32_t>(sequences.size());
  header.num_outputs = static_cast<uint32_t>(outputs.size());
  header.table_len = static_cast<uint32_t>(table.size());
  header.num_draws = static_cast<uint32_t>(draws.size());
  header.num_pooled = static_cast<uint32_t>(pooled.size());
  const DeviceArray step(device(), StepBytes(header));
  WriteStep({header, rows, sequences, outputs, table, draws, pooled}, step.data());

  const auto x = RandomFloats(rows.size() * cols, 5);
  const DeviceArray in(device(), x), out(device(), pooled.size() * cols * 4),
      again(device(), pooled.size() * cols * 4);
  const auto launch = [&](const DeviceArray& to) {
    return PoolLaunch(
        tuning(),
        {.step = step.address(), .source = in.address(), .destination = to.address(), .cols = cols},
        5);
  };
  Run({launch(out), launch(again)});
  EXPECT_TRUE(out.Intact() && again.Intact());
  EXPECT_EQ(out.floats(), again.floats());
  for (uint32_t p = 0; p < pooled.size(); ++p) {
    const SequenceEntry& sequence = sequences[pooled[p]];
    for (uint32_t c = 0; c < cols; ++c) {
      double sum = 0, magnitude = 0;
      for (uint32_t r = 0; r < sequence.num_rows; ++r) {
        const double value = x[size_t{sequence.first_row + r} * cols + c];
        sum += value;
        magnitude += std::abs(value);
      }
      // num_rows - 1 additions, whatever their order.
      ASSERT_NEAR(out.as<float>()[p * cols + c], sum,
                  sequence.num_rows * magnitude * testing::kEpsilonF32)
          << "pooled sequence " << p << " column " << c;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Columns, PoolTest, ::testing::Values(4u, 28u, 36u, 64u, 1028u));

}  // namespace
}  // namespace tandem::gpu

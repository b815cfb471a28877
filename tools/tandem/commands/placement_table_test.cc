#include "tools/tandem/commands/placement_table.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(PlacementTableTest, ShowsWhatIsKnown) {
  v1::GetStatusResponse status;
  EXPECT_EQ(PlacementTable(status), "");
  v1::PlacementStatus* placement = status.add_placements();
  placement->set_placement("everything on gpu0");
  placement->set_in_force(true);
  placement->set_streams(1);
  placement->set_predicted_decode_tokens_per_second(38.25);
  placement->set_predicted_prompt_tokens_per_second(658);
  placement->set_predicted_joules_per_token(1.2345);
  placement->set_measured_slowdown(1.5);
  placement = status.add_placements();
  placement->set_placement("Attend on npu0");
  placement->set_streams(1);
  EXPECT_EQ(
      PlacementTable(status),
      "PLACEMENT           IN FORCE  STREAMS  DECODE tok/s  PROMPTS tok/s  J/token  NOW\n"
      "everything on gpu0  yes             1          38.2          658.0     1.23  1.50 times as "
      "long\n"
      "Attend on npu0      no              1           0.0            0.0        -  not run\n");
}

}  // namespace
}  // namespace tandem

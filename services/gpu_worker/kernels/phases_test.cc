// Launches of phases that are counted, one at a time.
#include "services/gpu_worker/kernels/phases.h"

#include "services/gpu_worker/kernels/matvec_case_for_test.h"

namespace tandem::gpu {
namespace {

struct Outcome {
  DependencyCounter before, own;
  uint32_t given_up = 0;
  std::vector<float> output;
};

class PhasesTest : public MatvecTest {
 protected:
  static constexpr uint32_t kOut = 100, kColumns = 96, kGroups = 4;

  static constexpr int32_t kBefore = 9;  // workgroups of the phase before

  // A matmul in a phase.  `waits`: for the phase before, whose last `left` workgroups have not ended.
  // `awaited`: another phase waits for this one.
  Outcome RunAfter(int32_t left, bool waits, uint32_t rows = 1, uint32_t already_given_up = 0,
                   bool awaited = true) {
    const TileMatrix matrix(device(), DType::kQ8_0, kOut, kColumns, 5);
    const TestActivations x(1, kColumns, 4);
    const DeviceArray step = MakeStep(rows), input(device(), x.Bytes(ActivationFormat::kInt8)),
                      output(device(), kOut * sizeof(float)),
                      given_up(device(), std::vector<uint32_t>{already_given_up}),
                      counters(device(), 3 * sizeof(DependencyCounter));
    const uint64_t begin = (counters.address() + 63) / 64 * 64;
    const auto at = counters.data().subspan(begin - counters.address());
    const DependencyCounter phases[2] = {
        {.left = left, .groups = kBefore, .given_up = given_up.address(), .awaited = 1},
        {.left = kGroups,
         .groups = kGroups,
         .given_up = given_up.address(),
         .waits = waits ? 1u : 0u,
         .awaited = awaited ? 1u : 0u}};
    std::memcpy(at.data(), phases, sizeof(phases));
    Launch launch = MatvecLaunch(tuning_, matrix.tensor, matrix.tensor.shards[0], {},
                                 {.count = RowCount(step),
                                  .x = input.address(),
                                  .destination = output.address(),
                                  .out_stride = kOut,
                                  .max_rows = 1});
    EXPECT_EQ(launch.groups_x * launch.groups_y, kGroups);
    SetPhase(launch, begin + sizeof(DependencyCounter), waits);
    if (already_given_up == 0) SetMostPolls(launch, 1000);
    Run({launch});
    Outcome outcome;
    std::memcpy(&outcome.before, at.data(), sizeof(DependencyCounter));
    std::memcpy(&outcome.own, at.data() + sizeof(DependencyCounter), sizeof(DependencyCounter));
    outcome.given_up = given_up.as<uint32_t>()[0];
    outcome.output = output.floats();
    return outcome;
  }
};

TEST_F(PhasesTest, CountWorkgroupsDown) {
  for (const bool waits : {false, true}) {
    const Outcome outcome = RunAfter(0, waits);
    EXPECT_EQ(outcome.own.left, 0);
    EXPECT_EQ(outcome.before.left, waits ? kBefore : 0) << "reset by the phase that waited for it";
    EXPECT_EQ(outcome.given_up, 0u);
    EXPECT_EQ(outcome.output, RunAfter(7, false).output) << "who does not wait sees nothing of it";
  }
  EXPECT_EQ(RunAfter(0, true, 0).own.left, 0) << "with no rows too";
}

TEST_F(PhasesTest, ACounterThatNobodyAwaitsIsSetBackAtOnce) {
  for (const uint32_t rows : {0u, 1u}) {
    const Outcome outcome = RunAfter(0, true, rows, 0, false);
    EXPECT_EQ(outcome.own.left, kGroups);
    EXPECT_EQ(outcome.before.left, kBefore);
  }
}

TEST_F(PhasesTest, AWaitThatTakesTooLongIsGivenUpAndSaid) {
  for (const uint32_t rows : {0u, 1u}) {
    const Outcome outcome = RunAfter(7, true, rows);
    EXPECT_EQ(outcome.given_up, 1u);
    EXPECT_EQ(outcome.own.left, 0);
  }
  EXPECT_EQ(RunAfter(7, true, 1, 1).own.left, 0) << "once it is, nobody waits for long";
}

}  // namespace
}  // namespace tandem::gpu

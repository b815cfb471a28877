// Checkpoints run over placements.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "services/common/testing/plan_runner.h"
#include "services/common/testing/status_matchers.h"
#include "tests/evaluation/placements.h"
#include "tests/support/checkpoint.h"
#include "tests/support/reference_outputs.h"

namespace tandem::evaluation {

// Opened once in a process; aborts the test program when it cannot be.
const testing::Checkpoint& OpenCheckpoint(const std::string& path);
const testing::ReferenceOutputs& OpenReferenceOutputs(const std::string& folder);

// Places a checkpoint.  Skips the test when the placement lacks its device.
class EvaluationTest : public ::testing::Test {
 protected:
  void Place(const std::string& placement, const std::string& checkpoint_path,
             const testing::RunLimits& limits);

  std::unique_ptr<testing::PlanRunner> runner_;
};

// "checkpoint" in a form usable as the name of a test.
std::string TestName(const std::string& text);

}  // namespace tandem::evaluation

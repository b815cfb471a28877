// Measures a running cluster through its public API.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "services/common/energy/energy.h"
#include "tools/tandem/api_client.h"
#include "tools/tandem/bench/bench_report.h"

namespace tandem {

struct MeasureHooks {
  // Called before each test; may be empty.
  std::function<void(const std::string&)> progress;
  // Of the machine that the cluster runs on; null: `no_energy` says why there is none.
  EnergyMeter* energy = nullptr;  // Borrowed.
  std::string no_energy;
};

// Runs the plan's tests one after another, once the gateway is ready.  UNAVAILABLE at once where no
// gateway answers.  INVALID_ARGUMENT as CheckTests, before anything has
// run; FAILED_PRECONDITION: the cluster is busy with other requests.
absl::StatusOr<BenchReport> Measure(GenerationStub& stub, const BenchOptions& options,
                                    const MeasureHooks& hooks = {});

// What the result's steps read and computed at least; fills bytes and flops.
void CountWork(const v1::ModelWork& work, uint32_t max_rows, uint32_t repetitions,
               BenchResult& result);

}  // namespace tandem

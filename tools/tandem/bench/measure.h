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
  // The meter of the cluster's machine; null: `no_energy` says why.
  EnergyMeter* energy = nullptr;  // Borrowed.
  std::string no_energy;
};

// Waits for the gateway, then runs the plan's tests one after another.  UNAVAILABLE at once if no
// gateway answers.  INVALID_ARGUMENT as CheckTests, before any test; FAILED_PRECONDITION: the
// cluster is busy with other requests.
absl::StatusOr<BenchReport> Measure(GenerationStub& stub, const BenchOptions& options,
                                    const MeasureHooks& hooks = {});

// Fills bytes and flops: the least that the result's steps read and computed.
void CountWork(const v1::ModelWork& work, uint32_t max_rows, uint32_t repetitions,
               BenchResult& result);

}  // namespace tandem

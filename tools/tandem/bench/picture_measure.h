// Measures requests with pictures: `tandem bench --images`.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/tandem/api_client.h"
#include "tools/tandem/bench/bench_report.h"

namespace tandem {

// For each batch every number of pictures; none without --images.
std::vector<BenchPictureTest> PlanPictureTests(const BenchOptions& options);

// FAILED_PRECONDITION: the gateway takes no pictures, with its reason.  INVALID_ARGUMENT: a test
// that exceeds the context or `max_sequences`; names the flag.
absl::Status CheckPictureTests(const std::vector<BenchPictureTest>& tests,
                               const v1::ModelInfo& model, uint32_t max_sequences);

// Asks twice in each repetition, with a token as the answer: about new pictures, then with another
// question about the same ones.  `progress` gets the test and the repetition; may be empty.  UNIMPLEMENTED: an
// older gateway, whose status has no pictures.
absl::StatusOr<BenchPictureResult> MeasurePictures(
    GenerationStub& stub, const BenchPictureTest& test, const BenchOptions& options,
    const std::function<void(const std::string&)>& progress);

}  // namespace tandem

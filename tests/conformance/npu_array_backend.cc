#include <cstdlib>
#include <string_view>

#include "services/common/base/status_macros.h"
#include "services/common/testing/compare.h"
#include "services/npu_worker/worker_test_support.h"
#include "tests/conformance/backend.h"

namespace tandem::conformance {
namespace {

absl::StatusOr<std::unique_ptr<Worker>> MakeArrayWorker() {
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Worker> worker, npu::MakeEmulatedWorker());
  return worker;
}

// npu1 multiplies bfloat16 exactly.  npu4 multiplies in block floating point: eight numbers share an
// exponent, and each has a sign and seven bits below it.
double EpsilonOfProfile() {
  const char* const profile = std::getenv("NPU_EMU_PROFILE");
  constexpr double kEpsilonBlock = 0x1p-7;
  return profile != nullptr && std::string_view(profile) == "npu1" ? testing::kEpsilonBf16
                                                                   : kEpsilonBlock;
}

}  // namespace

const Backend& BackendUnderTest() {
  static const Backend backend{
      .name = "npu array",
      .make_worker = MakeArrayWorker,
      .epsilon = EpsilonOfProfile(),
  };
  return backend;
}

}  // namespace tandem::conformance

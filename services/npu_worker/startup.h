// From a policy to an NPU that may serve, or to an exit code that says why not.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/base/exit_codes.h"
#include "services/common/plan/planner.h"
#include "services/common/rpc/worker_absence.h"
#include "services/npu_worker/npu_worker.h"

namespace tandem::npu {

// The folder of this executable, and what lies beside it after a build and an installation:
// ../lib/tandem/npu/{emulated,hardware} and ../lib/tandem/xrt-emulated.
std::string LibraryFolder();

struct StartupOptions {
  NpuPolicy policy = NpuPolicy::kPrefer;
  NpuWorker::Options worker;  // kernel_folder empty: the policy's own below `library_folder`
  std::string library_folder = LibraryFolder();
  std::string emulated_xrt;  // XRT root of the emulated NPU; empty: below `library_folder`
};

// Sets the environment that makes XRT load the emulated NPU.  Call before XRT's first use and
// before any thread starts.  NOT_FOUND: the root has no emulated NPU.
absl::Status UseEmulatedNpu(const std::string& xrt_root);

// Readies the environment for the policy and fills in the default folders.  Before threads.
// FAILED_PRECONDITION: policy off, or XRT is set to emulate although the policy wants an NPU.
absl::Status PrepareNpu(StartupOptions& options);

// Why there is no worker, for the gateway.  `status` is what PrepareNpu or NpuWorker::Create failed
// with; `device_folder` is where the driver puts the NPU's nodes.
WorkerAbsence AbsenceOf(const StartupOptions& options, const absl::Status& status,
                        const std::string& device_folder = "/dev/accel");

// What to exit with when PrepareNpu or NpuWorker::Create failed with `status`, or when a later self-test
// did (docs/npu.md).  DATA_LOSS, wrong answers: kExitWrongAnswers under every policy that wants an NPU.
// Otherwise kExitNothingToDo under "prefer" and "auto", where attention belongs on the GPU then.
ExitCode ExitCodeFor(NpuPolicy policy, const absl::Status& status);

// `status` as operators read it: says of wrong answers (DATA_LOSS) that the NPU is there and gives them.
std::string ReasonOf(const absl::Status& status);

}  // namespace tandem::npu

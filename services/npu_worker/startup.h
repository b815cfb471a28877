// From a policy to an NPU that may serve, or to an exit code that says why not.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/plan/planner.h"
#include "services/npu_worker/npu_worker.h"

namespace tandem::npu {

// How tandem-npu-worker ends; docs/npu.md says what to do about each.
enum ExitCode : int {
  kExitOk = 0,
  kExitFailure = 1,   // it cannot listen
  kExitUsage = 2,     // flags, or --npu=off
  kExitNoNpu = 3,     // --npu=prefer and no NPU can be used here: attention belongs on the GPU
  kExitUnusable = 4,  // --npu=require or emulate, and the NPU cannot be opened
  kExitSelfTest = 5,  // ... or it opens and gives wrong answers
};

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
// FAILED_PRECONDITION: policy off, or XRT is told to emulate although the policy wants an NPU.
absl::Status PrepareNpu(StartupOptions& options);

// What to exit with when PrepareNpu or NpuWorker::Create failed with `status`.
ExitCode ExitCodeFor(NpuPolicy policy, const absl::Status& status);

}  // namespace tandem::npu

#include "services/npu_worker/startup.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/npu_worker/xrt/device_access.h"

namespace tandem::npu {

std::string LibraryFolder() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  return (self.parent_path().parent_path() / "lib/tandem").string();
}

absl::Status UseEmulatedNpu(const std::string& xrt_root) {
  const std::string library = xrt_root + "/lib/libxrt_noop.so.2";
  if (::access(library.c_str(), R_OK) != 0) {
    return absl::NotFoundError(absl::StrFormat(
        "%s is missing: the emulated NPU is built where XRT 2.13 is installed (Debian 12: libxrt1, "
        "libxrt-dev) on x86-64; or name its folder with --emulated-xrt",
        library));
  }
  ::setenv("XILINX_XRT", xrt_root.c_str(), /*overwrite=*/1);
  ::setenv("XCL_EMULATION_MODE", "noop", /*overwrite=*/1);
  return absl::OkStatus();
}

absl::Status PrepareNpu(StartupOptions& options) {
  std::string& kernels = options.worker.kernel_folder;
  switch (options.policy) {
    case NpuPolicy::kOff:
      return absl::FailedPreconditionError(
          "--npu=off: an NPU worker has nothing to do; do not start it");
    case NpuPolicy::kEmulate: {
      const std::string& given = options.emulated_xrt;
      // A processor computes what the driver's time-out gives an NPU for.
      if (options.worker.run_timeout == kRunTimeout) options.worker.run_timeout = absl::Seconds(10);
      if (kernels.empty()) kernels = options.library_folder + "/npu/emulated";
      return UseEmulatedNpu(given.empty() ? options.library_folder + "/xrt-emulated" : given);
    }
    case NpuPolicy::kAuto:
    case NpuPolicy::kRequire:
    case NpuPolicy::kPrefer:
      break;
  }
  if (IsEmulated()) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "XCL_EMULATION_MODE=%s makes XRT emulate: unset it, or run with --npu=emulate",
        std::getenv("XCL_EMULATION_MODE")));
  }
  TANDEM_RETURN_IF_ERROR(CheckDeviceNode("/dev/accel"));
  if (kernels.empty()) kernels = options.library_folder + "/npu/hardware";
  if (!std::filesystem::exists(kernels)) {
    return absl::NotFoundError(absl::StrFormat(
        "no kernel package in %s: name one that was built for this NPU with --kernels", kernels));
  }
  return absl::OkStatus();
}

WorkerAbsence AbsenceOf(const StartupOptions& options, const absl::Status& status,
                        const std::string& device_folder) {
  WorkerAbsence absence{.kind = "npu", .name = options.worker.name};
  if (options.policy == NpuPolicy::kOff) {
    absence.reason = "its worker was started with --npu=off";
  } else if (!absl::IsDataLoss(status) && absl::IsNotFound(CheckDeviceNode(device_folder))) {
    absence.reason = absl::StrFormat("this machine has no NPU (nothing in %s)", device_folder);
  } else {
    absence.device_present = true;
    absence.reason = ReasonOf(status);
  }
  return absence;
}

ExitCode ExitCodeFor(NpuPolicy policy, const absl::Status& status) {
  if (status.ok()) return kExitSuccess;
  if (policy == NpuPolicy::kOff) return kExitUsage;
  if (absl::IsDataLoss(status)) return kExitWrongAnswers;
  return NpuIsOptional(policy) ? kExitNothingToDo : kExitNoDevice;
}

std::string ReasonOf(const absl::Status& status) {
  const std::string message(status.message());
  if (!absl::IsDataLoss(status)) return message;
  return absl::StrFormat("the NPU is there but gives wrong answers, so it is not used: %s",
                         message);
}

}  // namespace tandem::npu

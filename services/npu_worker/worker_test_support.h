// What tests of the NPU worker share: the emulated NPU, and attention plans to run on it.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "services/common/base/status_macros.h"
#include "services/common/testing/model_configs.h"
#include "services/common/testing/paths.h"
#include "services/common/testing/plan_runner.h"
#include "services/common/testing/random_weights.h"
#include "services/common/testing/step_builder.h"
#include "services/npu_worker/npu_worker.h"
#include "services/npu_worker/package/package.h"
#include "services/npu_worker/startup.h"
#include "services/npu_worker/xrt/npu_kernel.h"

namespace tandem::npu {

// A package of operators of the emulated driver, for the chip that NPU_EMU_PROFILE names: "package", whose
// operators share an xclbin, or "separate", where each has its own.  By default what NPU_DRIVER_PACKAGE
// names, else "package".
inline std::string DriverPackage(const char* name = std::getenv("NPU_DRIVER_PACKAGE")) {
  const char* const folder = std::getenv("NPU_DRIVER");
  const char* const profile = std::getenv("NPU_EMU_PROFILE");
  return (folder == nullptr ? BuildPath("lib/tandem/npu-driver") : folder) + "/" +
         (profile == nullptr ? "npu4" : profile) + "/" + (name == nullptr ? "package" : name);
}

// The kernel of one of its operators, in a context of its own.
inline absl::StatusOr<std::shared_ptr<NpuKernel>> OpenDriverKernel(const std::string& name) {
  TANDEM_ASSIGN_OR_RETURN(const OperatorPackage package, OperatorPackage::Read(DriverPackage()));
  const auto op = std::ranges::find(package.operators, name, &NpuOperator::name);
  if (op == package.operators.end()) return absl::NotFoundError("no operator " + name);
  return NpuKernel::Open({.xclbin_path = op->xclbin_path}, op->kernel_name);
}

// Of another buffer.  Device addresses are never used twice: the distance between two buffers tells how many
// were made in between.
inline uint64_t NextDeviceAddress(NpuKernel& kernel) {
  return *kernel.Allocate(0, 4096)->DeviceAddress();
}

// A worker on the emulated NPU of this build, or on another XRT root.  The first call of a
// process decides the root.  On the emulated driver (emulator/driver/run.sh sets NPU_DRIVER) the worker
// takes it for an NPU's, and runs operators on its array.
inline absl::StatusOr<std::unique_ptr<NpuWorker>> MakeEmulatedWorker(
    absl::Duration run_timeout = absl::Seconds(60), const std::string& xrt_root = "",
    const std::string& package = DriverPackage()) {
  StartupOptions options;
  options.library_folder = BuildPath("lib/tandem");
  if (std::getenv("NPU_DRIVER") == nullptr) {
    options.policy = NpuPolicy::kEmulate;
  } else {
    options.policy = NpuPolicy::kRequire;
    options.worker.kernel_folder = package;
  }
  options.emulated_xrt = xrt_root;
  options.worker.run_timeout = run_timeout;
  TANDEM_RETURN_IF_ERROR(PrepareNpu(options));
  return NpuWorker::Create(options.worker);
}

// Attend of every layer, a segment each.
inline std::vector<Segment> AttendSegments(const ModelConfig& config) {
  std::vector<Segment> segments;
  for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
    segments.push_back(testing::SingleStage({StageKind::kAttend, layer}, config));
  }
  return segments;
}

// Attend and Out of every layer, a segment each.
inline std::vector<Segment> AttendAndOutSegments(const ModelConfig& config) {
  std::vector<Segment> segments;
  for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
    segments.push_back(testing::SingleStage({StageKind::kAttend, layer}, config));
    segments.push_back(testing::SingleStage({StageKind::kOut, layer}, config));
  }
  return segments;
}

// Gaussian q, k and v for `num_rows` rows of a lane.
inline void WriteRandomInputs(testing::PlanRunner& runner, uint32_t num_rows, uint32_t seed,
                              uint32_t lane = 0) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const auto fill = [&](Port port, uint32_t dim) {
    std::vector<float> values(size_t{num_rows} * dim);
    for (float& value : values) value = normal(random);
    runner.WritePort(port, values, lane);
  };
  fill(Port::kQ, runner.config().q_dim());
  fill(Port::kK, runner.config().kv_dim());
  fill(Port::kV, runner.config().kv_dim());
}

}  // namespace tandem::npu

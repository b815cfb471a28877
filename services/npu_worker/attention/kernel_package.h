// A kernel package: a folder with a manifest, an xclbin and instruction sequences (README.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/tensor/dtype.h"

namespace tandem::npu {

struct AttendKernel {
  uint32_t head_dim = 0;
  uint32_t max_positions = 0;  // of any sequence in a step: the length bucket
  std::vector<uint32_t> instructions;
};

struct OutKernel {
  DType weight_dtype = DType::kF16;
  std::vector<uint32_t> instructions;
};

struct KernelPackage {
  std::string device;  // what it was built for, in words
  bool emulated = false;
  std::string xclbin_path;
  std::string kernel_name;
  std::vector<AttendKernel> attend;  // by head_dim, then max_positions
  std::vector<OutKernel> out;

  // Reads and checks a package.  NOT_FOUND: no manifest; INVALID_ARGUMENT: names the file and what
  // is wrong with it (file names leave the folder, an instruction sequence is no whole number of
  // words, the ABI is of another version, ...).
  static absl::StatusOr<KernelPackage> Read(const std::string& folder);

  std::vector<uint32_t> HeadDims() const;
  std::vector<DType> WeightDtypes() const;
  // Kernels of a head size, shortest bucket first, up to the first that holds `num_positions`.
  // FAILED_PRECONDITION when there is none, or none that long.
  absl::StatusOr<std::vector<const AttendKernel*>> AttendBuckets(uint32_t head_dim,
                                                                 uint32_t num_positions) const;
  // FAILED_PRECONDITION when there is none.
  absl::StatusOr<const OutKernel*> FindOut(DType weight_dtype) const;
};

}  // namespace tandem::npu

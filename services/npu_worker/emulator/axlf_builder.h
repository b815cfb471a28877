// Writes a minimal NPU xclbin: the axlf container that XRT 2.13 and later load.  Several kernels in one are
// what `aiecc --xclbin-input` merges: a configuration of the array each, in one partition.
//
// Layout (xrt/detail/xclbin.h): a 456-byte head (magic, axlf_header), one 40-byte header per
// section, then the sections, each starting at a multiple of 8.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem::npu::emulator {

struct AxlfKernel {
  std::string name = "MLIR_AIE";
  std::string instance_name = "MLIRAIE";
  uint32_t num_data_buffers = 5;                             // kernel arguments 3 ...
  std::vector<uint8_t> pdi = std::vector<uint8_t>(4096, 0);  // configuration of the array
};

struct AxlfOptions {
  std::vector<AxlfKernel> kernels = {{}};
  uint16_t num_columns = 4;        // width of the partition
  std::array<uint8_t, 16> uuid{};  // must not be all zero
};

// INVALID_ARGUMENT: no kernel, two of one name, a zero uuid, or names longer than the 63 bytes a kernel entry
// holds.
absl::StatusOr<std::vector<uint8_t>> BuildAxlf(const AxlfOptions& options);

}  // namespace tandem::npu::emulator

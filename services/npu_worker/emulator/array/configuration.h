// The configuration of an emulated array, as an xclbin carries it: the name of a design.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/npu_worker/emulator/array/emulated_array.h"

namespace tandem::npu::emulator {

// A configuration's bytes, a whole page.  REQUIRES a name shorter than 64 bytes.
std::vector<uint8_t> MakeConfiguration(std::string_view design);
// The design that a configuration names; nullopt: it is no configuration of an emulated array.
std::optional<std::string> DesignOf(std::span<const std::byte> configuration);

// "gemm_q8_0", "gemm_q4_0", "gemm_bf16", "attention_64", "attention_128", "attention_256" and "rows", with the
// cores of the array's generation.  NOT_FOUND: another name, or an array of too few columns.
absl::StatusOr<EmulatedArray::DesignFactory> FindDesign(std::string_view name,
                                                        const ArrayShape& shape);

}  // namespace tandem::npu::emulator

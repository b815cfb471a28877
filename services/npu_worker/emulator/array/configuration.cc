#include "services/npu_worker/emulator/array/configuration.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/npu_worker/emulator/array/attention_design.h"
#include "services/npu_worker/emulator/array/gemm_design.h"
#include "services/npu_worker/emulator/array/row_design.h"

namespace tandem::npu::emulator {
namespace {

constexpr std::string_view kMark = "tandem emulated array: ";
constexpr size_t kMaxName = 64;
constexpr size_t kBytes = 4096;

}  // namespace

std::vector<uint8_t> MakeConfiguration(std::string_view design) {
  TANDEM_CHECK(design.size() < kMaxName);
  std::vector<uint8_t> bytes(kBytes, 0);
  std::copy(kMark.begin(), kMark.end(), bytes.begin());
  std::copy(design.begin(), design.end(), bytes.begin() + kMark.size());
  return bytes;
}

std::optional<std::string> DesignOf(std::span<const std::byte> configuration) {
  if (configuration.size() < kMark.size() + kMaxName ||
      std::memcmp(configuration.data(), kMark.data(), kMark.size()) != 0) {
    return std::nullopt;
  }
  const auto* name = reinterpret_cast<const char*>(configuration.data()) + kMark.size();
  return std::string(name, ::strnlen(name, kMaxName));
}

absl::StatusOr<EmulatedArray::DesignFactory> FindDesign(std::string_view name,
                                                        const ArrayShape& shape) {
  constexpr std::pair<const char*, GemmFormat> kFormats[] = {{"gemm_q8_0", GemmFormat::kQ8_0},
                                                             {"gemm_q4_0", GemmFormat::kQ4_0},
                                                             {"gemm_bf16", GemmFormat::kBf16}};
  for (const auto& [design, format] : kFormats) {
    if (name != design) continue;
    if (shape.num_columns < kNumCoreRows) break;
    return [format = format, shape](Fabric& fabric) -> std::unique_ptr<Design> {
      return std::make_unique<GemmDesign>(format, shape, fabric);
    };
  }
  for (const uint32_t head_dim : {64u, 128u, 256u}) {
    if (name != absl::StrFormat("attention_%d", head_dim)) continue;
    return [head_dim, shape](Fabric& fabric) -> std::unique_ptr<Design> {
      return std::make_unique<AttentionDesign>(head_dim, shape, fabric);
    };
  }
  if (name == "rows") {
    return [shape](Fabric& fabric) -> std::unique_ptr<Design> {
      return std::make_unique<RowDesign>(shape, fabric);
    };
  }
  return absl::NotFoundError(absl::StrFormat("no design '%s' for an emulated array of %d columns",
                                             std::string(name), shape.num_columns));
}

}  // namespace tandem::npu::emulator

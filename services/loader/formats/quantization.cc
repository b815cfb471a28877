#include "services/loader/formats/quantization.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"

namespace tandem::loader {
namespace {

// Numbers of llama_ftype whose names say more than the format of most matrices.
constexpr std::pair<std::string_view, std::string_view> kFileTypes[] = {
    {"14", "Q4_K_S"}, {"15", "Q4_K_M"}, {"16", "Q5_K_S"}, {"17", "Q5_K_M"}};

bool IsLayerMatrix(const SourceTensor& tensor) {
  return !IsVision(tensor.role) && !IsNorm(tensor.role) && tensor.role != WeightRole::kEmbedding &&
         tensor.role != WeightRole::kHead;
}

}  // namespace

std::string QuantizationName(const std::vector<SourceTensor>& tensors, std::string_view file_type) {
  std::map<DType, uint64_t> bytes;
  for (const SourceTensor& tensor : tensors) {
    if (IsLayerMatrix(tensor)) bytes[tensor.dtype] += tensor.num_bytes;
  }
  if (bytes.empty()) return "";
  const auto most = std::max_element(
      bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const DType dtype = most->first;
  const std::string name = absl::AsciiStrToUpper(std::string(Traits(dtype).name));
  for (const auto& [number, known] : kFileTypes) {
    if (number == file_type && known.starts_with(name)) return std::string(known);
  }
  if (dtype != DType::kQ4_K && dtype != DType::kQ5_K) return name;
  return name + (bytes.size() > 1 ? "_M" : "_S");
}

std::string QuantizationOf(const ModelSource& source) {
  const auto& metadata = source.metadata();
  const auto found = std::find_if(metadata.begin(), metadata.end(), [](const auto& pair) {
    return pair.first == "general.file_type";
  });
  return QuantizationName(source.tensors(), found == metadata.end() ? "" : found->second);
}

}  // namespace tandem::loader

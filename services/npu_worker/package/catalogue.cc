#include "services/npu_worker/package/catalogue.h"

#include "absl/strings/str_format.h"

namespace tandem::npu {
namespace {

nlohmann::ordered_json ShapesOf(const CatalogueOperator& op) {
  switch (op.control) {
    case ControlKind::kAttention:
      return {{"head_dim", op.head_dim}};
    case ControlKind::kGemm:
      return {{"weight_format", std::string(Traits(op.weight_dtype).name)}};
    case ControlKind::kRows:
      break;
  }
  return nlohmann::ordered_json::object();
}

}  // namespace

const std::vector<CatalogueDevice>& CatalogueDevices() {
  static const std::vector<CatalogueDevice> devices = {
      {"npu1", {.generation = 3, .num_columns = 4}}, {"npu4", {.generation = 4, .num_columns = 8}}};
  return devices;
}

const std::vector<CatalogueOperator>& CatalogueOperators() {
  static const std::vector<CatalogueOperator> operators = [] {
    std::vector<CatalogueOperator> all;
    for (const uint32_t head_dim : {64u, 128u, 256u}) {
      all.push_back({.name = absl::StrFormat("attention_%d", head_dim),
                     .control = ControlKind::kAttention,
                     .head_dim = head_dim});
    }
    for (const DType dtype : {DType::kQ8_0, DType::kQ4_0, DType::kBf16}) {
      all.push_back({.name = absl::StrFormat("gemm_%s", std::string(Traits(dtype).name)),
                     .control = ControlKind::kGemm,
                     .weight_dtype = dtype});
    }
    all.push_back({.name = "rows", .control = ControlKind::kRows});
    return all;
  }();
  return operators;
}

nlohmann::ordered_json OperatorEntry(const CatalogueDevice& device, const CatalogueOperator& op,
                                     const std::string& xclbin, const PackageOrigin& origin) {
  nlohmann::ordered_json arguments = nlohmann::ordered_json::array();
  for (const std::string& name : ArgumentNames(op.control)) {
    arguments.push_back({{"name", name}, {"index", 3 + arguments.size()}, {"group", 0}});
  }
  const ParameterPlace place;
  return {
      {"name", op.name},
      {"control", std::string(ControlKindName(op.control))},
      {"device", device.name},
      {"columns", device.array.num_columns},
      {"numbers", "bf16"},
      {"xclbin", xclbin},
      {"kernel", op.name},
      {"shapes", ShapesOf(op)},
      {"arguments", arguments},
      {"parameters",
       {{"address", place.address}, {"lock", place.lock}, {"words", ParameterNames(op.control)}}},
      {"provenance",
       {{"source", origin.source}, {"revision", origin.revision}, {"toolchain", origin.toolchain}}},
      {"licence", origin.licence}};
}

}  // namespace tandem::npu

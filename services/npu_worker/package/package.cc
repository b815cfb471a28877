#include "services/npu_worker/package/package.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"
#include "services/npu_worker/package/package_reader.h"

namespace tandem::npu {
namespace {

// NPUs that control code is written for, and what XRT calls them.
struct KnownDevice {
  const char* name;
  std::vector<std::string_view> names_of_xrt;
};
const std::vector<KnownDevice>& KnownDevices() {
  static const std::vector<KnownDevice> devices = {
      {"npu1", {"npu1", "Phoenix", "Hawk"}},
      {"npu4", {"npu4", "npu5", "npu6", "Strix", "Krackan"}},
  };
  return devices;
}

}  // namespace

std::string_view ControlKindName(ControlKind kind) {
  switch (kind) {
    case ControlKind::kAttention:
      return "attention";
    case ControlKind::kGemm:
      return "gemm";
    case ControlKind::kRows:
      return "rows";
  }
  return "";
}

const std::vector<std::string>& ArgumentNames(ControlKind kind) {
  static const std::vector<std::string> attention = {"queries", "cache", "output", "scratch"};
  static const std::vector<std::string> gemm = {"activations", "weights", "output"};
  static const std::vector<std::string> rows = {"first", "second", "output", "weights"};
  if (kind == ControlKind::kRows) return rows;
  return kind == ControlKind::kAttention ? attention : gemm;
}

const std::vector<std::string>& ParameterNames(ControlKind kind) {
  // kernels/aie/attention_tile.h, row_tile.h, kernels/README.md.
  static const std::vector<std::string> attention = {"first_position", "first_key",   "num_tiles",
                                                     "num_keys",       "window",      "scale",
                                                     "picture_first",  "picture_last"};
  static const std::vector<std::string> gemm = {"num_input_tiles", "num_output_tiles"};
  static const std::vector<std::string> rows = {"function",  "num_rows",      "size",
                                                "num_heads", "inverse_count", "epsilon"};
  if (kind == ControlKind::kRows) return rows;
  return kind == ControlKind::kAttention ? attention : gemm;
}

const OperatorArgument& NpuOperator::argument(std::string_view argument_name) const {
  const auto it = std::ranges::find(arguments, argument_name, &OperatorArgument::name);
  TANDEM_CHECK(it != arguments.end());
  return *it;
}

absl::StatusOr<OperatorPackage> OperatorPackage::Read(const std::string& folder) {
  return ReadPackage(folder);
}

std::vector<uint32_t> OperatorPackage::HeadDims() const {
  std::vector<uint32_t> dims;
  for (const NpuOperator& op : operators) {
    if (op.control == ControlKind::kAttention) dims.push_back(op.head_dim);
  }
  std::ranges::sort(dims);
  return dims;
}

absl::StatusOr<const NpuOperator*> OperatorPackage::FindAttention(uint32_t head_dim) const {
  for (const NpuOperator& op : operators) {
    if (op.control == ControlKind::kAttention && op.head_dim == head_dim) return &op;
  }
  return absl::FailedPreconditionError(
      absl::StrFormat("the package %s has no attention for head size %d, it has %s", folder,
                      head_dim, absl::StrJoin(HeadDims(), ", ")));
}

std::vector<DType> OperatorPackage::GemmFormats() const {
  std::vector<DType> formats;
  for (const NpuOperator& op : operators) {
    if (op.control == ControlKind::kGemm) formats.push_back(op.weight_dtype);
  }
  return formats;
}

const NpuOperator* OperatorPackage::FindGemm(DType weight_dtype) const {
  for (const NpuOperator& op : operators) {
    if (op.control == ControlKind::kGemm && op.weight_dtype == weight_dtype) return &op;
  }
  return nullptr;
}

const NpuOperator* OperatorPackage::FindRows() const {
  const auto it = std::ranges::find(operators, ControlKind::kRows, &NpuOperator::control);
  return it == operators.end() ? nullptr : &*it;
}

std::string OperatorPackage::Devices() const {
  std::vector<std::string> devices;
  for (const NpuOperator& op : operators) {
    std::string device = absl::StrFormat("%s, %d columns", op.device, op.array.num_columns);
    if (std::ranges::find(devices, device) == devices.end()) devices.push_back(std::move(device));
  }
  return absl::StrJoin(devices, "; ");
}

absl::Status OperatorPackage::CheckDevice(std::string_view device_name) const {
  const auto is_called = [device_name](std::string_view name) {
    return device_name.find(name) != std::string_view::npos;
  };
  for (const KnownDevice& device : KnownDevices()) {
    if (!std::ranges::any_of(device.names_of_xrt, is_called)) continue;
    for (const NpuOperator& op : operators) {
      if (op.device == device.name) continue;
      return absl::FailedPreconditionError(absl::StrFormat(
          "operator '%s' of the package %s is built for %s, and this NPU is %s (%s): use a package "
          "built for %s",
          op.name, folder, op.device, device.name, std::string(device_name), device.name));
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem::npu

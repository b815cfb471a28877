// tandem-make-emulated-packages DIR: writes DIR/npu1/package and DIR/npu4/package, packages of operators
// for the emulated driver's arrays (format in ../../package/README.md).  Run at build time.
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_format.h"
#include "services/npu_worker/emulator/array/configuration.h"
#include "services/npu_worker/emulator/axlf_builder.h"
#include "services/npu_worker/emulator/write_file.h"
#include "services/npu_worker/package/package.h"

namespace tandem::npu::emulator {
namespace {

using nlohmann::ordered_json;

struct Device {
  const char* name;
  uint32_t columns;
};
constexpr Device kDevices[] = {{"npu1", 4}, {"npu4", 8}};

ordered_json Entry(const Device& device, const std::string& design, ControlKind kind,
                   const ordered_json& shapes) {
  ordered_json arguments = ordered_json::array();
  for (const std::string& name : ArgumentNames(kind)) {
    arguments.push_back({{"name", name}, {"index", 3 + arguments.size()}, {"group", 0}});
  }
  const ParameterPlace place;
  return {{"name", design},
          {"control", std::string(ControlKindName(kind))},
          {"device", device.name},
          {"columns", device.columns},
          {"numbers", "bf16"},
          {"xclbin", design + ".xclbin"},
          {"kernel", "MLIR_AIE"},
          {"shapes", shapes},
          {"arguments", arguments},
          {"parameters",
           {{"address", place.address}, {"lock", place.lock}, {"words", ParameterNames(kind)}}},
          {"provenance",
           {{"source", "services/npu_worker/emulator/array"},
            {"revision", "of this build"},
            {"toolchain", "none: the emulated driver alone executes it"}}},
          {"licence", "Apache-2.0"}};
}

bool WriteXclbin(const std::filesystem::path& path, const Device& device, const std::string& design,
                 ControlKind kind) {
  AxlfOptions options;
  options.num_data_buffers = static_cast<uint32_t>(ArgumentNames(kind).size());
  options.num_columns = static_cast<uint16_t>(device.columns);
  options.pdi = MakeConfiguration(design);
  for (size_t i = 0; i < options.uuid.size(); ++i) {
    options.uuid[i] = static_cast<uint8_t>(design[i % design.size()] + device.columns);
  }
  const auto xclbin = BuildAxlf(options);
  return xclbin.ok() && WriteFile(path, xclbin->data(), xclbin->size());
}

bool WritePackage(const std::filesystem::path& folder, const Device& device) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  ordered_json operators = ordered_json::array();
  const auto add = [&](const std::string& design, ControlKind kind, const ordered_json& shapes) {
    operators.push_back(Entry(device, design, kind, shapes));
    return WriteXclbin(folder / (design + ".xclbin"), device, design, kind);
  };
  for (const uint32_t head_dim : {64u, 128u, 256u}) {
    const std::string design = absl::StrFormat("attention_%d", head_dim);
    if (!add(design, ControlKind::kAttention, {{"head_dim", head_dim}})) return false;
  }
  for (const char* format : {"q8_0", "q4_0", "bf16"}) {
    const std::string design = absl::StrFormat("gemm_%s", format);
    if (!add(design, ControlKind::kGemm, {{"weight_format", format}})) return false;
  }
  if (!add("rows", ControlKind::kRows, ordered_json::object())) return false;
  const ordered_json package = {{"format", "tandem-npu-package"},
                                {"version", 3},
                                {"emulated", true},
                                {"operators", operators}};
  const std::string text = package.dump(2) + "\n";
  return WriteFile(folder / "package.json", text.data(), text.size());
}

}  // namespace
}  // namespace tandem::npu::emulator

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s DIR\n", argv[0]);
    return 2;
  }
  for (const auto& device : tandem::npu::emulator::kDevices) {
    const auto folder = std::filesystem::path(argv[1]) / device.name / "package";
    if (!tandem::npu::emulator::WritePackage(folder, device)) return 1;
  }
  return 0;
}

// tandem-make-emulated-packages DIR: writes packages of operators for the emulated driver's arrays (format in
// ../../package/README.md), for npu1 and npu4: DIR/npu*/package, whose operators share an xclbin, DIR/npu*/elf,
// which is the same with control code as ELFs, and DIR/npu*/separate, where each has its own.  Run at build time.
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

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

// An operator, whose kernel has its design's name.
struct Operator {
  std::string design;
  ControlKind kind;
  ordered_json shapes;
};

std::vector<Operator> Operators() {
  std::vector<Operator> operators;
  for (const uint32_t head_dim : {64u, 128u, 256u}) {
    operators.push_back({absl::StrFormat("attention_%d", head_dim),
                         ControlKind::kAttention,
                         {{"head_dim", head_dim}}});
  }
  for (const char* format : {"q8_0", "q4_0", "bf16"}) {
    operators.push_back(
        {absl::StrFormat("gemm_%s", format), ControlKind::kGemm, {{"weight_format", format}}});
  }
  operators.push_back({"rows", ControlKind::kRows, ordered_json::object()});
  return operators;
}

ordered_json Entry(const Device& device, const Operator& op, const std::string& xclbin,
                   const char* code) {
  ordered_json arguments = ordered_json::array();
  for (const std::string& name : ArgumentNames(op.kind)) {
    arguments.push_back({{"name", name}, {"index", 3 + arguments.size()}, {"group", 0}});
  }
  const ParameterPlace place;
  return {{"name", op.design},
          {"control", std::string(ControlKindName(op.kind))},
          {"device", device.name},
          {"columns", device.columns},
          {"numbers", "bf16"},
          {"xclbin", xclbin},
          {"kernel", op.design},
          {"code", code},
          {"shapes", op.shapes},
          {"arguments", arguments},
          {"parameters",
           {{"address", place.address}, {"lock", place.lock}, {"words", ParameterNames(op.kind)}}},
          {"provenance",
           {{"source", "services/npu_worker/emulator/array"},
            {"revision", "of this build"},
            {"toolchain", "none: the emulated driver alone executes it"}}},
          {"licence", "Apache-2.0"}};
}

bool WriteXclbin(const std::filesystem::path& path, const Device& device,
                 std::span<const Operator> operators) {
  AxlfOptions options;
  options.kernels.clear();
  for (const Operator& op : operators) {
    options.kernels.push_back(
        {.name = op.design,
         .num_data_buffers = static_cast<uint32_t>(ArgumentNames(op.kind).size()),
         .pdi = MakeConfiguration(op.design)});
  }
  options.num_columns = static_cast<uint16_t>(device.columns);
  const std::string name = path.filename().string();
  for (size_t i = 0; i < options.uuid.size(); ++i) {
    options.uuid[i] = static_cast<uint8_t>(name[i % name.size()] + device.columns);
  }
  const auto xclbin = BuildAxlf(options);
  return xclbin.ok() && WriteFile(path, xclbin->data(), xclbin->size());
}

bool WriteManifest(const std::filesystem::path& folder, const ordered_json& operators) {
  const ordered_json package = {{"format", "tandem-npu-package"},
                                {"version", 3},
                                {"emulated", true},
                                {"operators", operators}};
  const std::string text = package.dump(2) + "\n";
  return WriteFile(folder / "package.json", text.data(), text.size());
}

// `shared`: all operators are kernels of one xclbin.
bool WritePackage(const std::filesystem::path& folder, const Device& device, bool shared,
                  const char* code) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const std::vector<Operator> operators = Operators();
  constexpr char kShared[] = "operators.xclbin";
  if (shared && !WriteXclbin(folder / kShared, device, operators)) return false;
  ordered_json entries = ordered_json::array();
  for (const Operator& op : operators) {
    const std::string own = op.design + ".xclbin";
    entries.push_back(Entry(device, op, shared ? kShared : own, code));
    if (!shared && !WriteXclbin(folder / own, device, {&op, 1})) return false;
  }
  return WriteManifest(folder, entries);
}

}  // namespace
}  // namespace tandem::npu::emulator

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s DIR\n", argv[0]);
    return 2;
  }
  for (const auto& device : tandem::npu::emulator::kDevices) {
    const auto folder = std::filesystem::path(argv[1]) / device.name;
    if (!tandem::npu::emulator::WritePackage(folder / "package", device, true, "instructions") ||
        !tandem::npu::emulator::WritePackage(folder / "elf", device, true, "elf") ||
        !tandem::npu::emulator::WritePackage(folder / "separate", device, false, "instructions")) {
      return 1;
    }
  }
  return 0;
}

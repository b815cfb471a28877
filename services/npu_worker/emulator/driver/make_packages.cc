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
#include "services/npu_worker/package/catalogue.h"

namespace tandem::npu::emulator {
namespace {

using nlohmann::ordered_json;

// Of the operators in a package.
const PackageOrigin kOrigin = {.source = "services/npu_worker/emulator/array",
                               .revision = "of this build",
                               .toolchain = "none: the emulated driver alone executes it",
                               .licence = "Apache-2.0"};

bool WriteXclbin(const std::filesystem::path& path, const CatalogueDevice& device,
                 std::span<const CatalogueOperator> operators) {
  AxlfOptions options;
  options.kernels.clear();
  for (const CatalogueOperator& op : operators) {
    options.kernels.push_back(
        {.name = op.name,
         .num_data_buffers = static_cast<uint32_t>(ArgumentNames(op.control).size()),
         .pdi = MakeConfiguration(op.name)});
  }
  options.num_columns = static_cast<uint16_t>(device.array.num_columns);
  const std::string name = path.filename().string();
  for (size_t i = 0; i < options.uuid.size(); ++i) {
    options.uuid[i] = static_cast<uint8_t>(name[i % name.size()] + device.array.num_columns);
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

// `shared`: all operators are kernels of one xclbin.  `code`: as a package says it.
bool WritePackage(const std::filesystem::path& folder, const CatalogueDevice& device, bool shared,
                  const char* code) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const std::vector<CatalogueOperator>& operators = CatalogueOperators();
  constexpr char kShared[] = "operators.xclbin";
  if (shared && !WriteXclbin(folder / kShared, device, operators)) return false;
  ordered_json entries = ordered_json::array();
  for (const CatalogueOperator& op : operators) {
    const std::string xclbin = shared ? kShared : op.name + ".xclbin";
    entries.push_back(OperatorEntry(device, op, xclbin, kOrigin));
    entries.back()["code"] = code;
    if (!shared && !WriteXclbin(folder / xclbin, device, {&op, 1})) return false;
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
  for (const auto& device : tandem::npu::CatalogueDevices()) {
    const auto folder = std::filesystem::path(argv[1]) / device.name;
    if (!tandem::npu::emulator::WritePackage(folder / "package", device, true, "instructions") ||
        !tandem::npu::emulator::WritePackage(folder / "elf", device, true, "elf") ||
        !tandem::npu::emulator::WritePackage(folder / "separate", device, false, "instructions")) {
      return 1;
    }
  }
  return 0;
}

// tandem-npu-package declare npu1|npu4: prints what the operators of a device need of an array
// (declaration.h).
// tandem-npu-package check FOLDER: reads a package as the worker does.  Ends with 1, and the reader's message,
// where the package is not accepted.
//
// scripts/npu-kernels uses both.
#include <cstdio>
#include <string>
#include <string_view>

#include "services/npu_worker/package/declaration.h"

namespace tandem::npu {
namespace {

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "tandem-npu-package: %s\n", std::string(status.message()).c_str());
  return 1;
}

int Declare(std::string_view name) {
  for (const CatalogueDevice& device : CatalogueDevices()) {
    if (device.name != name) continue;
    const auto declaration = DeclareOperators(device);
    if (!declaration.ok()) return Fail(declaration.status());
    std::printf("%s\n", declaration->dump(2).c_str());
    return 0;
  }
  std::fprintf(stderr, "tandem-npu-package: device '%s': there are npu1 and npu4\n",
               std::string(name).c_str());
  return 2;
}

int Check(const std::string& folder) {
  const auto package = OperatorPackage::Read(folder);
  if (!package.ok()) return Fail(package.status());
  std::printf("%s: %zu operators for %s%s\n", folder.c_str(), package->operators.size(),
              package->Devices().c_str(), package->emulated ? ", emulated" : "");
  return 0;
}

}  // namespace
}  // namespace tandem::npu

int main(int argc, char** argv) {
  const std::string_view command = argc == 3 ? argv[1] : "";
  if (command == "declare") return tandem::npu::Declare(argv[2]);
  if (command == "check") return tandem::npu::Check(argv[2]);
  std::fprintf(stderr, "usage: %s declare npu1|npu4\n       %s check FOLDER\n", argv[0], argv[0]);
  return 2;
}

// tandem-make-emulated-kernels DIR: writes the emulated NPU's kernel package (manifest, xclbin,
// instruction sequences; format in attention/README.md).  Run at build time.
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_format.h"
#include "services/common/tensor/dtype.h"
#include "services/npu_worker/attention/kernel_abi.h"
#include "services/npu_worker/emulator/axlf_builder.h"
#include "services/npu_worker/emulator/kernels/instructions.h"
#include "services/npu_worker/emulator/write_file.h"

namespace tandem::npu::emulator {
namespace {

using nlohmann::json;

constexpr uint32_t kHeadDims[] = {64, 128, 256};
constexpr uint32_t kBuckets[] = {4096, 131072};  // positions

bool WritePackage(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  AxlfOptions options;
  options.kernels[0].name = kKernelName;
  options.kernels[0].num_data_buffers = kNumDataBuffers;
  for (size_t i = 0; i < options.uuid.size(); ++i) {
    options.uuid[i] = static_cast<uint8_t>(0xA0 + i);
  }
  const auto xclbin = BuildAxlf(options);
  if (!xclbin.ok() || !WriteFile(folder / "kernels.xclbin", xclbin->data(), xclbin->size())) {
    return false;
  }
  json manifest = {{"format", "tandem-npu-kernels"}, {"abi_version", kAbiVersion},
                   {"device", "emulated NPU"},       {"emulated", true},
                   {"xclbin", "kernels.xclbin"},     {"kernel", kKernelName},
                   {"attend", json::array()},        {"out", json::array()}};
  for (const uint32_t head_dim : kHeadDims) {
    for (const uint32_t positions : kBuckets) {
      const Instructions words = {
          .kind = KernelKind::kAttend, .head_dim = head_dim, .max_positions = positions};
      const std::string name = absl::StrFormat("attend_h%d_f16_%d.bin", head_dim, positions);
      if (!WriteFile(folder / name, &words, sizeof(words))) return false;
      manifest["attend"].push_back({{"head_dim", head_dim},
                                    {"kv_format", "f16"},
                                    {"max_positions", positions},
                                    {"instructions", name}});
    }
  }
  for (uint32_t dtype = 0; dtype < kNumDTypes; ++dtype) {
    const std::string format(Traits(static_cast<DType>(dtype)).name);
    const Instructions words = {.kind = KernelKind::kOut, .weight_dtype = dtype};
    const std::string name = absl::StrFormat("out_%s.bin", format);
    if (!WriteFile(folder / name, &words, sizeof(words))) return false;
    manifest["out"].push_back({{"weight_format", format}, {"instructions", name}});
  }
  const std::string text = manifest.dump(2) + "\n";
  return WriteFile(folder / "manifest.json", text.data(), text.size());
}

}  // namespace
}  // namespace tandem::npu::emulator

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s DIR\n", argv[0]);
    return 2;
  }
  return tandem::npu::emulator::WritePackage(argv[1]) ? 0 : 1;
}

// config.json, then, after a NUL byte, generation_config.json.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "services/common/base/check.h"
#include "services/loader/formats/hf_config.h"
#include "services/loader/formats/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem::loader;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t split = text.find('\0');
  const auto config = ParseJson(text.substr(0, split));
  if (!config.ok()) return 0;
  nlohmann::json generation;
  if (split != std::string_view::npos) {
    auto second = ParseJson(text.substr(split + 1));
    if (second.ok()) generation = *std::move(second);
  }
  PrintJson(*config, 100);
  const auto release = ReadReleaseConfig(*config, generation);
  if (release.ok()) TANDEM_CHECK(release->model.Validate().ok());
  return 0;
}

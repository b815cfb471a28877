#include "tests/support/reference_outputs.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/loader/formats/byte_source.h"
#include "services/loader/formats/json.h"
#include "tests/support/tensor_file.h"

namespace tandem::testing {
namespace {

constexpr float kDecidedMargin = 0.05f;

absl::StatusOr<nlohmann::json> ReadJson(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const auto file, loader::FileSource::Open(path));
  TANDEM_ASSIGN_OR_RETURN(const std::string text, loader::ReadAll(file, 16 << 20));
  return loader::ParseJson(text);
}

}  // namespace

size_t ReferencePrompt::NumDecidedSteps() const {
  const auto close =
      std::ranges::find_if(margins, [](float margin) { return margin < kDecidedMargin; });
  return static_cast<size_t>(close - margins.begin());
}

absl::StatusOr<ReferenceOutputs> LoadReferenceOutputs(const std::string& folder) {
  TANDEM_ASSIGN_OR_RETURN(const nlohmann::json json, ReadJson(folder + "/reference.json"));
  TANDEM_ASSIGN_OR_RETURN(const nlohmann::json exact, ReadJson(folder + "/float64.json"));
  TANDEM_ASSIGN_OR_RETURN(const auto file, TensorFile::Open(folder + "/reference.safetensors"));
  ReferenceOutputs outputs;
  outputs.exact.prompt = exact.at("prompt").get<uint32_t>();
  outputs.exact.stride = exact.at("stride").get<uint32_t>();
  outputs.exact.logits = exact.at("logits").get<std::vector<std::vector<float>>>();
  TANDEM_ASSIGN_OR_RETURN(outputs.long_tokens, file.Read<uint32_t>("long.tokens"));
  TANDEM_ASSIGN_OR_RETURN(outputs.long_nll, file.Read<float>("long.nll"));
  for (const nlohmann::json& entry : json.at("prompts")) {
    ReferencePrompt prompt;
    const size_t i = outputs.prompts.size();
    prompt.text = entry.at("prompt").get<std::string>();
    prompt.continuation = entry.at("continuation").get<std::vector<uint32_t>>();
    prompt.margins = entry.at("margin").get<std::vector<float>>();
    TANDEM_ASSIGN_OR_RETURN(prompt.tokens, file.Read<uint32_t>(absl::StrFormat("%d.tokens", i)));
    TANDEM_ASSIGN_OR_RETURN(prompt.logits, file.Read<float>(absl::StrFormat("%d.logits", i)));
    prompt.num_logit_rows = static_cast<uint32_t>(std::min<size_t>(16, prompt.tokens.size()));
    outputs.prompts.push_back(std::move(prompt));
  }
  return outputs;
}

}  // namespace tandem::testing

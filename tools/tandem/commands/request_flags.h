// Flags of the commands that ask for tokens.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tandem/v1/generation.pb.h"
#include "tools/tandem/gateway_address.h"

namespace tandem {

struct RequestFlags {
  GatewayAddress address;
  std::string model;
  double timeout_seconds = 600;
  std::optional<uint32_t> max_tokens;  // 0: as many as the context holds
  std::vector<std::string> stop;
  std::optional<float> temperature;
  std::optional<uint32_t> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  std::optional<float> presence_penalty;
  std::optional<float> frequency_penalty;
  std::optional<uint64_t> seed;
};

// Adds --address, --api-key and --ca-file.
void AddAddressFlag(CLI::App& command, GatewayAddress& address);
void AddRequestFlags(CLI::App& command, RequestFlags& flags);

// Leaves parameters without a flag unset: the gateway has the defaults and checks the ranges.
v1::SamplingParams MakeSampling(const RequestFlags& flags);
// `default_max_tokens`: without a flag; 0: as many as the context holds.
v1::GenerationLimits MakeLimits(const RequestFlags& flags, uint32_t default_max_tokens = 0);

// `status`, with the gateway's address and a hint if it does not answer.
absl::Status Explain(const absl::Status& status, const GatewayAddress& address);

// INVALID_ARGUMENT: `text` (named `what`) is not UTF-8.
absl::Status CheckText(const std::string& what, const std::string& text);

}  // namespace tandem

#include "tools/tandem/commands/request_flags.h"

#include "absl/strings/str_format.h"
#include "services/common/base/utf8.h"

namespace tandem {

void AddAddressFlag(CLI::App& command, std::string& address) {
  command
      .add_option("--address", address,
                  "The gateway: unix:PATH or HOST:PORT (TANDEM_ADDRESS sets the default)")
      ->capture_default_str();
}

void AddRequestFlags(CLI::App& command, RequestFlags& flags) {
  AddAddressFlag(command, flags.address);
  command.add_option("--model", flags.model, "Its name; not needed where there is one");
  command.add_option("--timeout", flags.timeout_seconds, "Seconds an answer may take")
      ->check(CLI::Range(0.001, 1e6))
      ->capture_default_str();
  command.add_option("--max-tokens", flags.max_tokens, "Tokens to generate at most");
  command.add_option("--stop", flags.stop, "End before this text; may be repeated")
      ->allow_extra_args(false);
  command.add_option("--temperature", flags.temperature, "0: always the most probable token");
  command.add_option("--top-k", flags.top_k, "Keep the k most probable tokens; 0: all");
  command.add_option("--top-p", flags.top_p, "Keep the fewest that reach this probability");
  command.add_option("--min-p", flags.min_p, "Keep those this probable relative to the best");
  command.add_option("--repetition-penalty", flags.repetition_penalty,
                     "Divide the logits of tokens seen; 1: off");
  command.add_option("--presence-penalty", flags.presence_penalty,
                     "Lower the logits of tokens in the answer");
  command.add_option("--frequency-penalty", flags.frequency_penalty,
                     "The same, for each time a token is there");
  command.add_option("--seed", flags.seed, "Same seed, same request: same answer");
}

v1::SamplingParams MakeSampling(const RequestFlags& flags) {
  v1::SamplingParams sampling;
  if (flags.temperature) sampling.set_temperature(*flags.temperature);
  if (flags.top_k) sampling.set_top_k(*flags.top_k);
  if (flags.top_p) sampling.set_top_p(*flags.top_p);
  if (flags.min_p) sampling.set_min_p(*flags.min_p);
  if (flags.repetition_penalty) sampling.set_repetition_penalty(*flags.repetition_penalty);
  if (flags.presence_penalty) sampling.set_presence_penalty(*flags.presence_penalty);
  if (flags.frequency_penalty) sampling.set_frequency_penalty(*flags.frequency_penalty);
  if (flags.seed) sampling.set_seed(*flags.seed);
  return sampling;
}

v1::GenerationLimits MakeLimits(const RequestFlags& flags) {
  v1::GenerationLimits limits;
  if (flags.max_tokens) limits.set_max_tokens(*flags.max_tokens);
  for (const std::string& stop : flags.stop) limits.add_stop(stop);
  return limits;
}

absl::Status Explain(const absl::Status& status, const std::string& address) {
  if (!absl::IsUnavailable(status) ||
      status.message().find("failed to connect") == absl::string_view::npos) {
    return status;
  }
  return absl::UnavailableError(absl::StrFormat(
      "no gateway answers at %s: start one with `tandem serve` or name it with --address (%s)",
      address, status.message()));
}

absl::Status CheckText(const std::string& what, const std::string& text) {
  if (const auto bad = FindInvalidUtf8(text)) {
    return absl::InvalidArgumentError(absl::StrFormat("%s is not UTF-8 at byte %d", what, *bad));
  }
  return absl::OkStatus();
}

}  // namespace tandem

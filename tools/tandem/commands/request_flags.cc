#include "tools/tandem/commands/request_flags.h"

#include <fstream>

#include "absl/strings/str_format.h"
#include "services/common/base/utf8.h"

namespace tandem {

namespace {

// A key as it was given, or the first line of @FILE.
std::string ReadKey(const std::string& key) {
  if (!key.starts_with('@')) return key;
  std::ifstream file(key.substr(1));
  std::string line;
  if (!std::getline(file, line) || line.empty()) {
    throw CLI::ValidationError("--api-key: " + key.substr(1) + ": no key can be read");
  }
  return line;
}

}  // namespace

void AddAddressFlag(CLI::App& command, GatewayAddress& address) {
  command
      .add_option("--address", address.target,
                  "The gateway: unix:PATH or HOST:PORT (gRPC), or http[s]://HOST[:PORT] (its HTTP "
                  "port); TANDEM_ADDRESS sets the default")
      ->type_name("ADDRESS")
      ->capture_default_str();
  command
      .add_option("--api-key", address.api_key,
                  "Key for an HTTP address, or @FILE to read it from; TANDEM_API_KEY sets the "
                  "default")
      ->type_name("KEY")
      ->transform([](const std::string& key) { return ReadKey(key); });
  command
      .add_option(
          "--ca-file", address.ca_file,
          "PEM file of the CA that signs an https:// address's certificate, if the system does not "
          "know; TANDEM_CA_FILE sets the default")
      ->type_name("FILE");
  command
      .add_option("--trust-uid", address.trusted_uid,
                  "User whose gateway may be spoken to by a unix socket, beside one's own and "
                  "root's; TANDEM_TRUST_UID sets the default")
      ->type_name("UID");
}

void AddRequestFlags(CLI::App& command, RequestFlags& flags) {
  AddAddressFlag(command, flags.address);
  command.add_option("--model", flags.model, "Its name; not needed where there is one");
  command.add_option("--timeout", flags.timeout_seconds, "Seconds an answer may take")
      ->check(CLI::Range(0.001, 1e6))
      ->capture_default_str();
  command.add_option("--max-tokens", flags.max_tokens,
                     "Tokens to generate at most; 0: as many as the context holds");
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

v1::GenerationLimits MakeLimits(const RequestFlags& flags, uint32_t default_max_tokens) {
  v1::GenerationLimits limits;
  const uint32_t max_tokens = flags.max_tokens.value_or(default_max_tokens);
  if (max_tokens != 0) limits.set_max_tokens(max_tokens);
  for (const std::string& stop : flags.stop) limits.add_stop(stop);
  return limits;
}

absl::Status Explain(const absl::Status& status, const GatewayAddress& address) {
  const std::string text(status.message());
  if (absl::IsUnauthenticated(status) && address.is_http()) {
    return absl::UnauthenticatedError(
        absl::StrFormat("%s: %s; give a key by --api-key or TANDEM_API_KEY", address.target, text));
  }
  if (!absl::IsUnavailable(status)) return status;
  if (text.find("http1.x server") != std::string::npos) {
    return absl::UnavailableError(absl::StrFormat(
        "%s is no gRPC port; for an HTTP port write http://%s", address.target, address.target));
  }
  if (text.find("failed to connect") == std::string::npos) return status;
  // Both clients' texts end with the last attempt's reason.
  const size_t colon = text.rfind(": ");
  const std::string reason = colon == std::string::npos ? text : text.substr(colon + 2);
  if (reason.find("certificate") != std::string::npos) {
    return absl::UnavailableError(
        absl::StrFormat("%s: its certificate is not trusted (%s): name who signed it by --ca-file "
                        "or TANDEM_CA_FILE",
                        address.target, reason));
  }
  return absl::UnavailableError(absl::StrFormat(
      "no gateway answers at %s: start one with `tandem serve` or name it with --address (%s)",
      address.target, reason));
}

absl::Status CheckText(const std::string& what, const std::string& text) {
  if (const auto bad = FindInvalidUtf8(text)) {
    return absl::InvalidArgumentError(absl::StrFormat("%s is not UTF-8 at byte %d", what, *bad));
  }
  return absl::OkStatus();
}

}  // namespace tandem

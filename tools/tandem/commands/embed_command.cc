#include <grpcpp/client_context.h>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <memory>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/common/base/json_floats.h"
#include "services/common/base/status_macros.h"
#include "services/common/rpc/status.h"
#include "tools/tandem/api_client.h"
#include "tools/tandem/commands/answer_json.h"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/commands/request_flags.h"

namespace tandem {
namespace {

constexpr int kTextsAtOnce = 64;  // in one call

struct EmbedFlags {
  std::string address = DefaultGatewayAddress();
  std::string model;
  double timeout_seconds = 600;
  std::vector<std::string> words;
};

// {"text": ..., "embedding": [...]}.
std::string Line(const std::string& text, const v1::Embedding& embedding) {
  std::string line = "{\"text\":" + PrintJson(text, -1);
  line.pop_back();
  line += ",\"embedding\":";
  line += FloatsToJson({embedding.values().data(), static_cast<size_t>(embedding.values_size())});
  return line + "}\n";
}

// Embeds the request's texts, prints them and takes them out.
absl::Status EmbedAndPrint(GenerationStub& stub, const EmbedFlags& flags,
                           v1::EmbedRequest& request) {
  if (request.inputs_size() == 0) return absl::OkStatus();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       absl::ToChronoNanoseconds(absl::Seconds(flags.timeout_seconds)));
  v1::EmbedResponse response;
  TANDEM_RETURN_IF_ERROR(
      Explain(FromGrpcStatus(stub.Embed(&context, request, &response)), flags.address));
  if (response.embeddings_size() != request.inputs_size()) {
    return absl::InternalError(absl::StrFormat("%d embeddings of %d texts",
                                               response.embeddings_size(), request.inputs_size()));
  }
  for (int i = 0; i < request.inputs_size(); ++i) {
    std::fputs(Line(request.inputs(i).text(), response.embeddings(i)).c_str(), stdout);
  }
  request.clear_inputs();
  return absl::OkStatus();
}

absl::Status Embed(const EmbedFlags& flags) {
  const auto stub = MakeGenerationStub(flags.address);
  v1::EmbedRequest request;
  request.set_model(flags.model);
  if (!flags.words.empty() && flags.words != std::vector<std::string>{"-"}) {
    const std::string text = absl::StrJoin(flags.words, " ");
    TANDEM_RETURN_IF_ERROR(CheckText("the text", text));
    request.add_inputs()->set_text(text);
    return EmbedAndPrint(*stub, flags, request);
  }
  std::string line;
  for (int number = 1; std::getline(std::cin, line); ++number) {
    const std::string what = absl::StrFormat("line %d", number);
    TANDEM_RETURN_IF_ERROR(CheckText(what, line));
    if (line.empty()) return absl::InvalidArgumentError(what + " is empty");
    request.add_inputs()->set_text(line);
    if (request.inputs_size() < kTextsAtOnce) continue;
    TANDEM_RETURN_IF_ERROR(EmbedAndPrint(*stub, flags, request));
  }
  return EmbedAndPrint(*stub, flags, request);
}

}  // namespace

std::function<int()> AddEmbedCommand(CLI::App& app) {
  auto flags = std::make_shared<EmbedFlags>();
  CLI::App* command = app.add_subcommand(
      "embed", "Print texts' embeddings, the model's mean hidden states, as JSON lines");
  command->add_option("text", flags->words,
                      "Words of one text; none or \"-\": each line of standard input is one");
  AddAddressFlag(*command, flags->address);
  command->add_option("--model", flags->model, "Model's name; none: the only one");
  command->add_option("--timeout", flags->timeout_seconds, "Seconds for 64 texts")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  return [flags] {
    const absl::Status status = Embed(*flags);
    return status.ok() ? 0 : Fail(status);
  };
}

}  // namespace tandem

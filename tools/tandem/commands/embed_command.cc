#include <grpcpp/client_context.h>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/common/base/json_floats.h"
#include "services/common/base/status_macros.h"
#include "tools/tandem/api_client.h"
#include "tools/tandem/commands/answer_json.h"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/commands/request_flags.h"

namespace tandem {
namespace {

constexpr int kTextsAtOnce = 64;  // in one call

struct EmbedFlags {
  GatewayAddress address;
  std::string model;
  double timeout_seconds = 600;
  std::vector<std::string> words;
};

// {"text": ..., "embedding": [...]}.
std::string JsonLine(const std::string& text, const v1::Embedding& embedding) {
  std::string line = "{\"text\":" + PrintJson(text, -1);
  line.pop_back();
  line += ",\"embedding\":";
  line += FloatsToJson({embedding.values().data(), static_cast<size_t>(embedding.values_size())});
  return line + "}\n";
}

absl::StatusOr<v1::EmbedResponse> AskForEmbeddings(GenerationStub& stub, const EmbedFlags& flags,
                                                   const v1::EmbedRequest& request) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       absl::ToChronoNanoseconds(absl::Seconds(flags.timeout_seconds)));
  v1::EmbedResponse response;
  TANDEM_RETURN_IF_ERROR(
      Explain(FromGateway(stub.Embed(&context, request, &response)), flags.address));
  if (response.embeddings_size() != request.inputs_size()) {
    return absl::InternalError(absl::StrFormat("%d embeddings of %d texts",
                                               response.embeddings_size(), request.inputs_size()));
  }
  return response;
}

// Errors of one text, after which others are worth asking for.
bool IsAboutTheText(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsDataLoss(status);
}

// Lines of standard input, `kTextsAtOnce` to a call; what comes of each is a line of output, in the
// same order.
class LineEmbedder {
 public:
  LineEmbedder(GenerationStub& stub, const EmbedFlags& flags) : stub_(stub), flags_(flags) {}

  // INVALID_ARGUMENT: some lines failed, as the output says.  Other errors end at once.
  absl::Status Run(std::istream& input) {
    for (std::string text; std::getline(input, text);) {
      ++num_lines_;
      Line line;
      line.number = num_lines_;
      line.text = text;
      line.error = text.empty() ? absl::InvalidArgumentError("the line is empty")
                                : CheckText("the line", text);
      num_texts_ += line.error.ok() ? 1 : 0;
      lines_.push_back(std::move(line));
      if (num_texts_ == kTextsAtOnce) TANDEM_RETURN_IF_ERROR(Flush());
    }
    TANDEM_RETURN_IF_ERROR(Flush());
    if (num_failed_ == 0) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrFormat(
        "%d of %d lines failed; their errors are in the output", num_failed_, num_lines_));
  }

 private:
  struct Line {
    uint64_t number = 0;
    std::string text;
    absl::Status error;
    v1::Embedding embedding;
  };

  absl::Status Flush() {
    std::vector<Line*> texts;
    for (Line& line : lines_) {
      if (line.error.ok()) texts.push_back(&line);
    }
    absl::Status status = Embed(texts);
    if (IsAboutTheText(status) && texts.size() > 1) {
      // The call fails for one of them: find out which.
      for (Line* text : texts) {
        text->error = Embed({text});
        if (!text->error.ok() && !IsAboutTheText(text->error)) return text->error;
      }
      status = absl::OkStatus();
    } else if (IsAboutTheText(status)) {
      texts[0]->error = status;
      status = absl::OkStatus();
    }
    if (status.ok()) Print();
    lines_.clear();
    num_texts_ = 0;
    return status;
  }

  absl::Status Embed(const std::vector<Line*>& texts) {
    if (texts.empty()) return absl::OkStatus();
    v1::EmbedRequest request;
    request.set_model(flags_.model);
    for (const Line* text : texts) request.add_inputs()->set_text(text->text);
    TANDEM_ASSIGN_OR_RETURN(v1::EmbedResponse response, AskForEmbeddings(stub_, flags_, request));
    for (size_t i = 0; i < texts.size(); ++i) {
      texts[i]->embedding = std::move(*response.mutable_embeddings(static_cast<int>(i)));
    }
    return absl::OkStatus();
  }

  void Print() {
    for (const Line& line : lines_) {
      if (line.error.ok()) {
        std::fputs(JsonLine(line.text, line.embedding).c_str(), stdout);
        continue;
      }
      ++num_failed_;
      nlohmann::ordered_json json = {{"line", line.number}};
      json["error"] = std::string(line.error.message());
      std::fputs(PrintJson(json, -1).c_str(), stdout);
    }
    std::fflush(stdout);
  }

  GenerationStub& stub_;     // Borrowed.
  const EmbedFlags& flags_;  // Borrowed.
  std::vector<Line> lines_;
  int num_texts_ = 0;  // of them without an error
  uint64_t num_lines_ = 0, num_failed_ = 0;
};

absl::Status Embed(const EmbedFlags& flags) {
  TANDEM_ASSIGN_OR_RETURN(const auto stub, OpenGateway(flags.address));
  if (flags.words.empty() || flags.words == std::vector<std::string>{"-"}) {
    return LineEmbedder(*stub, flags).Run(std::cin);
  }
  const std::string text = absl::StrJoin(flags.words, " ");
  TANDEM_RETURN_IF_ERROR(CheckText("the text", text));
  v1::EmbedRequest request;
  request.set_model(flags.model);
  request.add_inputs()->set_text(text);
  TANDEM_ASSIGN_OR_RETURN(const auto response, AskForEmbeddings(*stub, flags, request));
  std::fputs(JsonLine(text, response.embeddings(0)).c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace

std::function<int()> AddEmbedCommand(CLI::App& app) {
  auto flags = std::make_shared<EmbedFlags>();
  CLI::App* command = app.add_subcommand(
      "embed", "Print texts' embeddings, the model's mean hidden states, as JSON lines");
  command->add_option(
      "text", flags->words,
      "Words of one text; none or \"-\": each line of standard input is one. A line "
      "that fails has its error in the output, and the others go on");
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

#include "tools/tandem/commands/batch.h"

#include <chrono>
#include <cstdio>
#include <deque>
#include <future>
#include <iostream>
#include <thread>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "tools/tandem/commands/answer_json.h"
#include "tools/tandem/commands/request_flags.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

absl::Status Refuse(const std::string& key, const char* expected) {
  return absl::InvalidArgumentError(absl::StrFormat("'%s' must be %s", key, expected));
}

absl::Status ParseMessages(const Json& list, BatchItem& item) {
  constexpr char kExpected[] = "a list of objects with a role and a content";
  if (!list.is_array() || list.empty()) return Refuse("messages", kExpected);
  for (const Json& entry : list) {
    if (!entry.is_object()) return Refuse("messages", kExpected);
    v1::ChatMessage& message = item.messages.emplace_back();
    for (const auto& [key, value] : entry.items()) {
      if (!value.is_string()) return Refuse("messages", kExpected);
      if (key == "role") message.set_role(value.get<std::string>());
      if (key == "content") message.set_content(value.get<std::string>());
    }
  }
  return absl::OkStatus();
}

// Applies one key of a line.
absl::Status Apply(const std::string& key, const Json& value, BatchItem& item) {
  if (key == "id") {
    item.id = value.dump();
  } else if (key == "prompt") {
    if (!value.is_string()) return Refuse(key, "a text");
    item.prompt = value.get<std::string>();
  } else if (key == "messages") {
    return ParseMessages(value, item);
  } else if (key == "max_tokens") {
    if (!value.is_number_unsigned() || value.get<uint64_t>() > UINT32_MAX) {
      return Refuse(key, "a whole number");
    }
    item.limits.set_max_tokens(value.get<uint32_t>());
  } else if (key == "temperature") {
    if (!value.is_number()) return Refuse(key, "a number");
    item.sampling.set_temperature(value.get<float>());
  } else if (key == "seed") {
    if (!value.is_number_unsigned()) return Refuse(key, "a whole number");
    item.sampling.set_seed(value.get<uint64_t>());
  } else {
    return absl::InvalidArgumentError(absl::StrFormat(
        "there is no key '%s'; use prompt or messages, id, max_tokens, temperature, seed",
        key.substr(0, 40)));
  }
  return absl::OkStatus();
}

struct Outcome {
  std::string line;
  bool ok = false;
};

Outcome AnswerLine(GenerationStub& stub, const GatewayAddress& address, const std::string& line,
                   uint64_t index, const BatchItem& defaults, absl::Duration timeout) {
  Json json = {{"index", index}};
  absl::StatusOr<BatchItem> item = ParseBatchLine(line, defaults);
  absl::Status status = item.status();
  if (item.ok()) {
    if (!item->id.empty()) json["id"] = Json::parse(item->id);
    Answer answer;
    status = Explain(Ask(
                         stub, *item, timeout, [](std::string_view) {}, answer),
                     address);
    if (status.ok()) json.update(AnswerAsJson(answer));
  }
  if (!status.ok()) {
    json["error"] = {{"code", absl::StatusCodeToString(status.code())},
                     {"message", std::string(status.message())}};
  }
  return {PrintJson(json, -1), status.ok()};
}

}  // namespace

absl::Status Ask(GenerationStub& stub, const BatchItem& item, absl::Duration timeout,
                 const TextSink& sink, Answer& answer) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoNanoseconds(timeout));
  const auto fill = [&item](auto& request) {
    request.set_model(item.model);
    *request.mutable_sampling() = item.sampling;
    *request.mutable_limits() = item.limits;
    if (item.logprobs) request.set_logprobs(*item.logprobs);
    if (item.constraint) *request.mutable_constraint() = *item.constraint;
  };
  if (item.messages.empty()) {
    v1::GenerateRequest request;
    fill(request);
    request.set_text(item.prompt);
    return ReadAnswer(*stub.Generate(&context, request), sink, answer);
  }
  v1::ChatRequest request;
  fill(request);
  for (const v1::ChatMessage& message : item.messages) *request.add_messages() = message;
  return ReadAnswer(*stub.Chat(&context, request), sink, answer);
}

absl::StatusOr<BatchItem> ParseBatchLine(const std::string& line, const BatchItem& defaults) {
  TANDEM_RETURN_IF_ERROR(CheckText("the line", line));
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError("the line is no JSON object");
  if (json.contains("prompt") == json.contains("messages")) {
    return absl::InvalidArgumentError("the line needs one of prompt and messages");
  }
  BatchItem item = defaults;
  for (const auto& [key, value] : json.items()) TANDEM_RETURN_IF_ERROR(Apply(key, value, item));
  return item;
}

absl::Status RunBatch(const GatewayAddress& address, const BatchItem& defaults, uint32_t parallel,
                      absl::Duration timeout) {
  TANDEM_ASSIGN_OR_RETURN(const auto stub, OpenGateway(address));
  std::deque<std::future<Outcome>> running;
  uint64_t count = 0, failed = 0;
  const auto print_first = [&] {
    const Outcome outcome = running.front().get();
    running.pop_front();
    failed += outcome.ok ? 0 : 1;
    std::fputs(outcome.line.c_str(), stdout);
    std::fflush(stdout);
  };
  for (std::string line; std::getline(std::cin, line);) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    if (running.size() >= parallel) print_first();
    running.push_back(std::async(std::launch::async, [&stub, &address, &defaults, timeout,
                                                      line = std::move(line), index = count++] {
      return AnswerLine(*stub, address, line, index, defaults, timeout);
    }));
  }
  while (!running.empty()) print_first();
  if (failed == 0) return absl::OkStatus();
  return absl::AbortedError(absl::StrFormat("%d of %d lines failed", failed, count));
}

}  // namespace tandem

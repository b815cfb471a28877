// Finds the calls of FunctionGemma in an answer while it streams.
//
//   <start_function_call>call:get_weather{city:<escape>Paris<escape>,days:3}<end_function_call>
//
// The markers are control tokens, whose names are in the text that is parsed
// (EngineRequest::shown_tokens).  Arguments become JSON as they come: {"city":"Paris","days":3}.
// Keys and values without <escape> that are no JSON become strings.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "services/gateway/tool_calls/call_parser.h"

namespace tandem::gateway {

// Names of the control tokens.
inline constexpr std::string_view kStartDeclaration = "<start_function_declaration>";
inline constexpr std::string_view kEndDeclaration = "<end_function_declaration>";
inline constexpr std::string_view kStartCall = "<start_function_call>";
inline constexpr std::string_view kEndCall = "<end_function_call>";
inline constexpr std::string_view kStartResponse = "<start_function_response>";
inline constexpr std::string_view kEndResponse = "<end_function_response>";
inline constexpr std::string_view kEscape = "<escape>";
inline constexpr std::string_view kFunctionMarkers[] = {
    kStartDeclaration, kEndDeclaration, kStartCall, kEndCall,
    kStartResponse,    kEndResponse,    kEscape};

// As CallParser; a call may have any name.
class FunctionGemmaParser : public AnswerParser {
 public:
  explicit FunctionGemmaParser(CallOptions options) : options_(std::move(options)) {}

  void Append(std::string_view piece, std::vector<AnswerEvent>& events) override;
  void Finish(std::vector<AnswerEvent>& events) override;

 private:
  enum class State { kText, kHeader, kArguments, kString };

  // Sorts markers from text.
  void Take(char c);
  void TakeMarker(std::string_view marker);
  void TakeByte(char c);
  // Begins the call that the held text names; false: the text names no call.
  bool BeginCall();
  void TakeHeader(char c);
  void TakeArguments(char c);
  // The value or key without <escape> that has ended.
  void EndBare();
  void EndCall();

  void AddText(std::string_view text);
  void AddArguments(std::string_view json);

  const CallOptions options_;
  State state_ = State::kText;
  std::vector<AnswerEvent>* events_ = nullptr;  // of the Append under way
  std::string marker_;                          // what may become a marker
  std::string held_;                            // white space, dropped before a call; or a header
  std::string bare_;
  std::string open_;  // brackets
  bool key_ = false;  // a key may come
  bool dropped_ = false;
  size_t num_calls_ = 0;
};

}  // namespace tandem::gateway

#include "services/gateway/tool_calls/functiongemma_parser.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"

namespace tandem::gateway {
namespace {

using Kind = AnswerEvent::Kind;

bool IsBlank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

// One byte within a JSON string.
std::string Escaped(char c) {
  if (c == '"' || c == '\\') return std::string("\\") + c;
  if (static_cast<unsigned char>(c) >= 0x20) return std::string(1, c);
  if (c == '\n') return "\\n";
  if (c == '\t') return "\\t";
  return absl::StrFormat("\\u%04x", static_cast<unsigned char>(c));
}

std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) out += Escaped(c);
  return out + '"';
}

}  // namespace

void FunctionGemmaParser::Append(std::string_view piece, std::vector<AnswerEvent>& events) {
  events_ = &events;
  for (const char c : piece) Take(c);
  events_ = nullptr;
}

void FunctionGemmaParser::Finish(std::vector<AnswerEvent>& events) {
  events_ = &events;
  for (const char c : std::exchange(marker_, std::string())) TakeByte(c);
  if (state_ == State::kArguments || state_ == State::kString) {
    EndBare();
    EndCall();
  } else if (state_ == State::kText && num_calls_ == 0) {
    AddText(held_);
  }
  held_.clear();
  events_ = nullptr;
}

void FunctionGemmaParser::Take(char c) {
  // Only the first byte of a marker is '<'.
  if (c == '<') {
    for (const char byte : std::exchange(marker_, std::string())) TakeByte(byte);
  } else if (marker_.empty()) {
    return TakeByte(c);
  }
  marker_ += c;
  bool begins = false;
  for (const std::string_view marker : kFunctionMarkers) {
    if (marker == marker_) {
      marker_.clear();
      return TakeMarker(marker);
    }
    begins = begins || marker.starts_with(marker_);
  }
  if (begins) return;
  for (const char byte : std::exchange(marker_, std::string())) TakeByte(byte);
}

void FunctionGemmaParser::TakeMarker(std::string_view marker) {
  if (marker == kEscape) {
    if (state_ == State::kString) {
      AddArguments("\"");
      state_ = State::kArguments;
    } else if (state_ == State::kArguments) {
      EndBare();
      AddArguments("\"");
      state_ = State::kString;
    }
    return;
  }
  // The others end the open value.
  if (state_ == State::kArguments || state_ == State::kString) {
    EndBare();
    EndCall();
  } else if (state_ == State::kHeader && BeginCall()) {
    AddArguments("}");
    EndCall();
  } else if (state_ == State::kHeader) {
    AddText(held_);
  }
  held_.clear();
  state_ = marker == kStartCall ? State::kHeader : State::kText;
}

void FunctionGemmaParser::TakeByte(char c) {
  switch (state_) {
    case State::kText:
      held_ += c;
      if (IsBlank(c)) return;
      AddText(held_);
      held_.clear();
      return;
    case State::kHeader:
      return TakeHeader(c);
    case State::kArguments:
      return TakeArguments(c);
    case State::kString:
      return AddArguments(Escaped(c));
  }
}

// call:NAME
bool FunctionGemmaParser::BeginCall() {
  std::string_view header = held_;
  while (!header.empty() && IsBlank(header.front())) header.remove_prefix(1);
  while (!header.empty() && IsBlank(header.back())) header.remove_suffix(1);
  constexpr std::string_view kCall = "call:";
  if (!header.starts_with(kCall) || header.size() == kCall.size()) return false;
  dropped_ = !options_.parallel && num_calls_ > 0;
  if (!dropped_) {
    events_->push_back({.kind = Kind::kCallBegin,
                        .call = num_calls_++,
                        .id = NewCallId(options_.id_prefix),
                        .name = std::string(header.substr(kCall.size()))});
  }
  held_.clear();
  state_ = State::kArguments;
  open_ = "{";
  key_ = true;
  AddArguments("{");
  return true;
}

void FunctionGemmaParser::TakeHeader(char c) {
  if (c == '{' && BeginCall()) return;
  held_ += c;
  if (c != '{') return;
  AddText(held_);
  held_.clear();
  state_ = State::kText;
}

void FunctionGemmaParser::TakeArguments(char c) {
  const std::string_view byte(&c, 1);
  if (c == '{' || c == '[') {
    EndBare();
    open_ += c;
    key_ = c == '{';
    AddArguments(byte);
  } else if (c == '}' || c == ']') {
    EndBare();
    AddArguments(open_.back() == '{' ? "}" : "]");
    open_.pop_back();
    key_ = false;
    if (open_.empty()) EndCall();
  } else if (c == ',') {
    EndBare();
    AddArguments(byte);
    key_ = open_.back() == '{';
  } else if (c == ':' && key_) {
    EndBare();
    AddArguments(byte);
    key_ = false;
  } else if (!bare_.empty() || !IsBlank(c)) {
    bare_ += c;
  }
}

void FunctionGemmaParser::EndBare() {
  while (!bare_.empty() && IsBlank(bare_.back())) bare_.pop_back();
  if (bare_.empty()) return;
  const auto value = nlohmann::json::parse(bare_, nullptr, /*allow_exceptions=*/false);
  const bool json = !key_ && !value.is_discarded() && !value.is_string();
  AddArguments(json ? bare_ : Quoted(bare_));
  bare_.clear();
}

void FunctionGemmaParser::EndCall() {
  if (!dropped_) events_->push_back({.kind = Kind::kCallEnd, .call = num_calls_ - 1});
  bare_.clear();
  held_.clear();
  state_ = State::kText;
}

void FunctionGemmaParser::AddText(std::string_view text) {
  if (text.empty()) return;
  if (events_->empty() || events_->back().kind != Kind::kText) {
    events_->push_back({.kind = Kind::kText});
  }
  events_->back().text += text;
}

void FunctionGemmaParser::AddArguments(std::string_view json) {
  if (dropped_ || json.empty()) return;
  if (events_->empty() || events_->back().kind != Kind::kCallArguments) {
    events_->push_back({.kind = Kind::kCallArguments, .call = num_calls_ - 1});
  }
  events_->back().text += json;
}

}  // namespace tandem::gateway

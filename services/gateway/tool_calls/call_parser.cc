#include "services/gateway/tool_calls/call_parser.h"

#include "absl/strings/str_format.h"
#include "services/common/base/random_bits.h"

namespace tandem::gateway {
namespace {

using Kind = AnswerEvent::Kind;

bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

// Languages of code fences that hold calls.
bool HoldsCalls(std::string_view language) {
  return language.empty() || language == "json" || language == "tool_code" ||
         language == "tool_call" || language == "tool_calls";
}

bool HoldsArguments(std::string_view key) { return key == "parameters" || key == "arguments"; }

}  // namespace

std::string NewCallId(const std::string& prefix) {
  return absl::StrFormat("%s%016x%08x", prefix, RandomBits(), RandomBits() >> 32);
}

void CallParser::Append(std::string_view piece, std::vector<AnswerEvent>& events) {
  events_ = &events;
  if (options_.names.empty()) {
    AddText(piece);
  } else {
    for (const char c : piece) Take(c);
  }
  events_ = nullptr;
}

void CallParser::Finish(std::vector<AnswerEvent>& events) {
  events_ = &events;
  if (named_ && !begun_) BeginCall();
  // After a call, the beginning of another is no text.
  const bool text = state_ == State::kText || state_ == State::kJson || num_calls_ == 0;
  if (begun_) {
    EndCall();
  } else if (text) {
    AddText(held_);
  }
  held_.clear();
  events_ = nullptr;
}

void CallParser::Take(char c) {
  switch (state_) {
    case State::kText:
      return TakeText(c);
    case State::kFence:
      return TakeFence(c);
    case State::kValue:
    case State::kItem:
      return TakeValue(c);
    case State::kKey:
      return TakeKey(c);
    case State::kKeyText:
      return TakeKeyText(c);
    case State::kColon:
    case State::kBegin:
      return TakeBegin(c);
    case State::kNameText:
      return TakeNameText(c);
    case State::kArguments:
      return TakeArguments(c);
    case State::kOther:
      return TakeOther(c);
    case State::kComma:
      return TakeComma(c);
    case State::kAfter:
      return TakeAfter(c);
    case State::kJson:
      return TakeJson(c);
  }
}

void CallParser::TakeText(char c) {
  held_ += c;
  if (IsSpace(c)) return;  // white space before a call is dropped
  if (c == '`') {
    fence_ = c;
    state_ = State::kFence;
  } else if (c == '{' || c == '[') {
    held_.pop_back();
    TakeValue(c);
  } else {
    AddText(held_);
    held_.clear();
  }
}

// ```LANGUAGE
void CallParser::TakeFence(char c) {
  const bool ticks = fence_.size() < 3;
  if (ticks != (c == '`')) return FailAsText(c);
  if (ticks || (c >= 'a' && c <= 'z') || c == '_') {
    held_ += c;
    fence_ += c;
    return;
  }
  if (!HoldsCalls(std::string_view(fence_).substr(3))) return FailAsText(c);
  fenced_ = true;
  state_ = State::kValue;
  TakeValue(c);
}

void CallParser::TakeValue(char c) {
  const bool item = state_ == State::kItem;
  if (c == '{') {
    held_ += c;
    BeginObject();
  } else if (c == '[' && !item) {
    held_ += c;
    in_list_ = true;
    state_ = State::kItem;
  } else if (item && (c == '"' || c == '-' || c == '[' || c == ']' || (c >= '0' && c <= '9'))) {
    FailAsJson(c);
  } else if (IsSpace(c)) {
    held_ += c;
  } else {
    FailAsText(c);
  }
}

void CallParser::BeginObject() {
  wrappers_ = 0;
  name_.clear();
  named_ = has_arguments_ = begun_ = dropped_ = false;
  early_arguments_.clear();
  state_ = State::kKey;
}

void CallParser::TakeKey(char c) {
  if (c == '}') return TakeComma(c);
  if (c != '"' && !IsSpace(c)) return FailAsText(c);
  held_ += c;
  if (c != '"') return;
  key_.clear();
  state_ = State::kKeyText;
}

void CallParser::TakeKeyText(char c) {
  if (c == '\\' && !begun_) return FailAsJson(c);
  held_ += c;
  if (c != '"') {
    key_ += c;
    return;
  }
  const bool known = key_ == "name" || HoldsArguments(key_) || key_ == "id" || key_ == "type" ||
                     key_ == "function";
  if (known || begun_) {
    state_ = State::kColon;
    return;
  }
  held_.pop_back();
  FailAsJson(c);
}

void CallParser::TakeBegin(char c) {
  if (IsSpace(c)) {
    held_ += c;
    return;
  }
  if (state_ == State::kColon) {
    if (c != ':') return FailAsText(c);
    held_ += c;
    state_ = State::kBegin;
    return;
  }
  if (key_ == "name" && !named_) {
    if (c != '"') return FailAsJson(c);
    held_ += c;
    state_ = State::kNameText;
    return;
  }
  depth_ = 0;
  in_string_ = escaped_ = false;
  if (key_ == "function" && c == '{' && !begun_ && !named_) {
    held_ += c;
    ++wrappers_;
    state_ = State::kKey;
  } else if (HoldsArguments(key_) && !has_arguments_) {
    if (c != '{') return FailAsJson(c);
    has_arguments_ = true;
    state_ = State::kArguments;
    if (named_) BeginCall();
    TakeArguments(c);
  } else {
    state_ = State::kOther;
    TakeOther(c);
  }
}

void CallParser::TakeNameText(char c) {
  if (c == '\\') return FailAsJson(c);
  if (c != '"') {
    held_ += c;
    name_ += c;
    return;
  }
  if (!committed_ && !options_.names.contains(name_)) return FailAsJson(c);
  held_ += c;
  named_ = true;
  state_ = State::kComma;
  if (has_arguments_) BeginCall();
}

void CallParser::TakeArguments(char c) {
  if (!begun_) held_ += c;
  PassArguments(c);
  if (Nest(c)) state_ = State::kComma;
}

void CallParser::TakeOther(char c) {
  if (!in_string_ && depth_ == 0 && (c == ',' || c == '}')) return TakeComma(c);
  held_ += c;
  Nest(c);
}

void CallParser::TakeComma(char c) {
  if (c == ',') {
    held_ += c;
    state_ = State::kKey;
  } else if (c == '}' && wrappers_ > 0) {
    held_ += c;
    --wrappers_;
    state_ = State::kComma;
  } else if (c == '}' && named_) {
    if (!begun_) {
      BeginCall();
      for (const char byte : std::string_view("{}")) PassArguments(byte);
    }
    EndCall();
  } else if (c == '}') {
    FailAsJson(c);
  } else if (IsSpace(c)) {
    held_ += c;
  } else {
    FailAsText(c);
  }
}

// What separates calls is dropped, and so are brackets that close nothing.
void CallParser::TakeAfter(char c) {
  if (IsSpace(c) || c == ';' || c == '}') return;
  if (c == ',') {
    if (in_list_) state_ = State::kItem;
  } else if (c == ']') {
    in_list_ = committed_ = false;
  } else if (c == '`' && fenced_) {
    fence_ += c;
    if (fence_.size() < 3) return;
    fence_.clear();
    fenced_ = false;
  } else if (c == '{' && in_list_) {
    TakeValue(c);
  } else {
    in_list_ = committed_ = false;
    state_ = State::kText;
    TakeText(c);
  }
}

void CallParser::TakeJson(char c) {
  AddText(std::string_view(&c, 1));
  if (Nest(c)) state_ = State::kText;
}

bool CallParser::Nest(char c) {
  if (in_string_) {
    if (escaped_) {
      escaped_ = false;
    } else if (c == '\\') {
      escaped_ = true;
    } else if (c == '"') {
      in_string_ = false;
    }
    return false;
  }
  if (c == '"') in_string_ = true;
  if (c == '{' || c == '[') ++depth_;
  return (c == '}' || c == ']') && depth_ > 0 && --depth_ == 0;
}

void CallParser::BeginCall() {
  begun_ = committed_ = true;
  held_.clear();
  dropped_ = !options_.parallel && num_calls_ > 0;
  if (dropped_) return;
  AnswerEvent& begin = Add(Kind::kCallBegin);
  begin.call = num_calls_++;
  begin.id = NewCallId(options_.id_prefix);
  begin.name = name_;
  if (early_arguments_.empty()) return;
  AnswerEvent& arguments = Add(Kind::kCallArguments);
  arguments.call = num_calls_ - 1;
  arguments.text = std::move(early_arguments_);
}

void CallParser::EndCall() {
  if (!dropped_) Add(Kind::kCallEnd).call = num_calls_ - 1;
  begun_ = named_ = false;
  held_.clear();
  fence_.clear();
  state_ = State::kAfter;
}

void CallParser::PassArguments(char c) {
  // A line's end within a string is no JSON; models write it all the same.
  std::string text(1, c);
  if (in_string_ && static_cast<unsigned char>(c) < 0x20) {
    text = c == '\n'   ? "\\n"
           : c == '\t' ? "\\t"
           : c == '\r' ? "\\r"
                       : absl::StrFormat("\\u%04x", static_cast<unsigned char>(c));
  }
  if (!begun_) {
    early_arguments_ += text;
    return;
  }
  if (dropped_) return;
  if (events_->empty() || events_->back().kind != Kind::kCallArguments) {
    Add(Kind::kCallArguments).call = num_calls_ - 1;
  }
  events_->back().text += text;
}

void CallParser::GiveUp() {
  if (begun_) {
    std::string rest = std::move(held_);
    EndCall();
    held_ = std::move(rest);
  }
  AddText(held_);
  held_.clear();
  named_ = fenced_ = in_list_ = committed_ = false;
}

void CallParser::FailAsText(char c) {
  GiveUp();
  state_ = State::kText;
  TakeText(c);
}

void CallParser::FailAsJson(char c) {
  const size_t object = state_ == State::kItem ? 0 : 1 + wrappers_;
  depth_ = object + (in_list_ ? 1 : 0);
  in_string_ = state_ == State::kNameText || state_ == State::kKeyText;
  escaped_ = false;
  GiveUp();
  state_ = State::kJson;
  TakeJson(c);
}

void CallParser::AddText(std::string_view text) {
  if (text.empty()) return;
  if (events_->empty() || events_->back().kind != Kind::kText) Add(Kind::kText);
  events_->back().text += text;
}

AnswerEvent& CallParser::Add(Kind kind) {
  events_->push_back({.kind = kind});
  return events_->back();
}

}  // namespace tandem::gateway

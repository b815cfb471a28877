// Finds the calls in an answer while it streams.
//
// Gemma 3's convention: a call is a JSON object with a function's name and its arguments.  Several
// calls are a JSON list, or objects one after the other.  Both may stand in a code fence.
//
//   {"name": "get_weather", "parameters": {"city": "Paris"}}
//   [{"name": ...}, {"name": ...}]
//   ```json
//   {"name": ..., "arguments": {...}}
//   ```
//
// Text that may become a call is held back until its first members tell.  A call begins once a
// function's name is known and its arguments open; from then on each byte of the arguments is
// passed on as it comes.  JSON whose name is no function is text, and so is everything in it.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem::gateway {

struct AnswerEvent {
  enum class Kind { kText, kCallBegin, kCallArguments, kCallEnd };
  Kind kind = Kind::kText;
  std::string text;  // of the text, or a piece of the arguments
  size_t call = 0;   // position of the call in the answer
  std::string id;    // of kCallBegin, as is the name
  std::string name;
};

// How a model is shown tools and writes calls.
enum class ToolFormat {
  kGemma3,         // JSON, in the user's turn
  kFunctionGemma,  // control tokens (functiongemma_parser.h)
};

struct CallOptions {
  // The functions that may be called.  None: the whole answer is text.
  std::set<std::string> names;
  // false: calls after the first are dropped.
  bool parallel = true;
  // Ids are this and 24 random hexadecimal digits.
  std::string id_prefix = "call_";
  ToolFormat format = ToolFormat::kGemma3;
};

// An id for a call.
std::string NewCallId(const std::string& prefix);

// Finds the calls of one format.  Single-thread, one per answer.
class AnswerParser {
 public:
  virtual ~AnswerParser() = default;
  // Appends the events of the next piece of the answer to `events`.
  virtual void Append(std::string_view piece, std::vector<AnswerEvent>& events) = 0;
  // The answer is over.  A call that breaks off ends with the arguments there are.
  virtual void Finish(std::vector<AnswerEvent>& events) = 0;
};

// The events do not depend on how the answer is cut into pieces, except that neighbouring pieces of
// one text or of one call's arguments may be joined.  Time linear in the bytes, at any nesting.
// Single-thread, one per answer.
class CallParser : public AnswerParser {
 public:
  explicit CallParser(CallOptions options) : options_(std::move(options)) {}

  void Append(std::string_view piece, std::vector<AnswerEvent>& events) override;
  // A call whose name is all there is has no arguments.  Held text that is not yet a call is text;
  // after a call it is dropped.
  void Finish(std::vector<AnswerEvent>& events) override;

 private:
  enum class State {
    kText,
    kFence,      // after a backtick
    kValue,      // an object or a list must follow
    kItem,       // in a list: an object must follow
    kKey,        // in a call's object: a key or its end
    kKeyText,    // within a key
    kColon,      // after a key
    kBegin,      // before the value of the key
    kNameText,   // within the function's name
    kArguments,  // within the arguments
    kOther,      // within the value of another key
    kComma,      // after a value
    kAfter,      // after a call, in a list or not
    kJson,       // JSON that is text
  };

  void Take(char c);
  void TakeText(char c);
  void TakeFence(char c);
  void TakeValue(char c);
  void TakeKey(char c);
  void TakeKeyText(char c);
  void TakeBegin(char c);
  void TakeNameText(char c);
  void TakeArguments(char c);
  void TakeOther(char c);
  void TakeComma(char c);
  void TakeAfter(char c);
  void TakeJson(char c);

  // Follows strings and nesting.  Returns true if `c` closes the outermost bracket.
  bool Nest(char c);
  void BeginObject();
  // REQUIRES the name.
  void BeginCall();
  void EndCall();
  void PassArguments(char c);
  // The bytes held are no call but text, and `c`, not held yet, is the next byte of it.
  void FailAsText(char c);
  // Likewise; it is JSON, open brackets included.
  void FailAsJson(char c);
  void GiveUp();

  void AddText(std::string_view text);
  AnswerEvent& Add(AnswerEvent::Kind kind);

  const CallOptions options_;
  State state_ = State::kText;
  std::vector<AnswerEvent>* events_ = nullptr;  // of the Append under way
  std::string held_;                            // text that may belong to a call

  // Of strings and brackets, in arguments, other values and JSON that is text.
  size_t depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;

  bool fenced_ = false;
  std::string fence_;
  bool in_list_ = false;
  bool committed_ = false;  // a call of this list has begun

  // The call's object.
  size_t wrappers_ = 0;  // objects around it: {"type": "function", "function": {...}}
  std::string key_;
  std::string name_;
  bool named_ = false;
  bool has_arguments_ = false;
  bool begun_ = false;
  bool dropped_ = false;         // it began and is not reported
  std::string early_arguments_;  // those that come before the name
  size_t num_calls_ = 0;
};

}  // namespace tandem::gateway

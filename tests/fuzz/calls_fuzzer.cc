// Answers of a model that may call tools.  The first byte says where the answer is cut.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "services/common/base/check.h"
#include "services/gateway/tool_calls/call_parser.h"
#include "services/gateway/tool_calls/functiongemma_parser.h"

namespace {

using namespace tandem::gateway;
using Kind = AnswerEvent::Kind;

struct Reading {
  std::string text;
  std::vector<std::string> calls;  // name, newline, arguments
  bool operator==(const Reading&) const = default;
};

// Checks that calls come in order, one at a time.
template <class Parser>
Reading Read(const std::vector<std::string_view>& pieces) {
  Parser parser({.names = {"roll", "get_weather"}});
  std::vector<AnswerEvent> events;
  for (const std::string_view piece : pieces) parser.Append(piece, events);
  parser.Finish(events);
  Reading reading;
  bool open = false;
  for (const AnswerEvent& event : events) {
    switch (event.kind) {
      case Kind::kText:
        TANDEM_CHECK(!open && !event.text.empty());
        reading.text += event.text;
        break;
      case Kind::kCallBegin:
        TANDEM_CHECK(!open && !event.id.empty());
        TANDEM_CHECK(event.call == reading.calls.size());
        reading.calls.push_back(event.name + "\n");
        open = true;
        break;
      case Kind::kCallArguments:
        TANDEM_CHECK(open && event.call + 1 == reading.calls.size());
        reading.calls.back() += event.text;
        break;
      case Kind::kCallEnd:
        TANDEM_CHECK(open && event.call + 1 == reading.calls.size());
        open = false;
        break;
    }
  }
  TANDEM_CHECK(!open);
  return reading;
}

// The same however the answer is cut.
template <class Parser>
Reading ReadCut(std::string_view answer, uint8_t where) {
  const Reading whole = Read<Parser>({answer});
  const size_t cut = answer.empty() ? 0 : where % answer.size();
  TANDEM_CHECK(Read<Parser>({answer.substr(0, cut), answer.substr(cut)}) == whole);
  std::vector<std::string_view> bytes;
  for (size_t i = 0; i < answer.size(); ++i) bytes.push_back(answer.substr(i, 1));
  TANDEM_CHECK(Read<Parser>(bytes) == whole);
  return whole;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view answer(reinterpret_cast<const char*>(data) + 1, size - 1);
  ReadCut<FunctionGemmaParser>(answer, data[0]);
  const Reading whole = ReadCut<CallParser>(answer, data[0]);
  // An answer without a call is its text, byte for byte.
  if (whole.calls.empty()) {
    TANDEM_CHECK(whole.text == answer);
  }
  return 0;
}

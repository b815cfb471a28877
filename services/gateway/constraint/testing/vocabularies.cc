#include "services/gateway/constraint/testing/vocabularies.h"

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"

namespace tandem::gateway::constraint {
namespace {

using Json = nlohmann::json;

// Merges are most of the file.
bool SkipMerges(int, Json::parse_event_t event, Json& value) {
  return event != Json::parse_event_t::key || value != "merges";
}

absl::StatusOr<Json> ReadJson(const std::filesystem::path& path) {
  const std::string command =
      (path.extension() == ".xz" ? "xz -dc '" : "cat '") + path.string() + "'";
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return absl::InvalidArgumentError(path.string() + ": cannot be read");
  std::string text;
  char buffer[1 << 16];
  for (size_t n; (n = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) text.append(buffer, n);
  pclose(pipe);
  Json json = Json::parse(text, SkipMerges, false);
  if (!json.is_object()) return absl::InvalidArgumentError(path.string() + ": is not JSON");
  return json;
}

// U+2581 stands for a space, <0x0A> for a byte.
std::string BytesOfPiece(const std::string& piece) {
  unsigned byte = 0;
  if (piece.size() == 6 && std::sscanf(piece.c_str(), "<0x%02X>", &byte) == 1) {
    return std::string(1, static_cast<char>(byte));
  }
  std::string bytes;
  for (size_t i = 0; i < piece.size(); ++i) {
    if (piece.compare(i, 3, "\xE2\x96\x81") == 0) {
      bytes += ' ';
      i += 2;
    } else {
      bytes += piece[i];
    }
  }
  return bytes;
}

}  // namespace

std::shared_ptr<const TokenTrie> ByteVocabulary(const std::vector<std::string>& pieces) {
  std::vector<std::string> bytes = {"", ""};
  for (int b = 0; b < 256; ++b) bytes.emplace_back(1, static_cast<char>(b));
  bytes.insert(bytes.end(), pieces.begin(), pieces.end());
  auto trie = TokenTrie::Create(std::move(bytes), {kEndToken});
  TANDEM_CHECK(trie.ok());
  return *std::move(trie);
}

std::shared_ptr<const TokenTrie> SmallVocabulary() {
  std::vector<std::string> pieces = {"{\"",      "\":",      "\": ",         "\": \"",
                                     "\",",      "\", \"",   "\"}",          "\"]",
                                     "[\"",      "{}",       "[]",           "},",
                                     "],",       "\"\"",     "\":\"",        ", ",
                                     ",\"",      "}}",       "]}",           "[[",
                                     "]]",       "\\\"",     "\\n",          "\\u",
                                     "\\u00",    "\n\n",     "\n  ",         "\n    ",
                                     "  ",       "    ",     "\t\t",         "true",
                                     "false",    "null",     "tru",          "alse",
                                     "ull",      "-1",       "00",           "000",
                                     "0.",       ".0",       "1e",           "e+",
                                     "-0",       "https",    "://",          ".com",
                                     "@",        "the",      "The",          " the",
                                     " of",      " and",     "ing",          "tion",
                                     "name",     "\"name",   "\"name\":",    "type",
                                     "value",    "items",    "id",           "é",
                                     "ö",        "ß",        "日",           "日本",
                                     "語",       "\xE6\x97", "\xA5\xE6\x9C", "😀",
                                     "\xF0\x9F", "\x98\x80", "naïve",        "Ж",
                                     "привет",   "://www",   "ab",           "abc",
                                     "bc",       "ba",       "aa",           "aaa",
                                     "aaaaaaaa", "xyz",      "a\"",          "b\":",
                                     "e\",\"",   "0]",       "1,",           "2,3",
                                     "9}",       "T0",       ":00",          ":00:00Z",
                                     "2024-",    "-01-"};
  for (char a = 'a'; a <= 'z'; ++a) {
    for (const char b : std::string_view("aeiourstn\" ")) pieces.push_back({a, b});
  }
  for (char a = '0'; a <= '9'; ++a) {
    for (char b = '0'; b <= '9'; ++b) pieces.push_back({a, b});
  }
  return ByteVocabulary(pieces);
}

std::filesystem::path FindTokenizerFile(const std::filesystem::path& folder) {
  if (const char* path = std::getenv("TANDEM_GEMMA_TOKENIZER")) return path;
  for (const char* name : {"gemma3-tokenizer.json", "gemma3-tokenizer.json.xz"}) {
    if (std::filesystem::exists(folder / name)) return folder / name;
  }
  return {};
}

absl::StatusOr<std::shared_ptr<const TokenTrie>> ReadTokenizerFile(
    const std::filesystem::path& path) {
  TANDEM_ASSIGN_OR_RETURN(const Json json, ReadJson(path));
  const auto wrong = [&] {
    return absl::InvalidArgumentError(path.string() + ": is not a tokenizer with a vocabulary");
  };
  if (!json.contains("model") || !json["model"].contains("vocab")) return wrong();
  const Json& vocab = json["model"]["vocab"];
  std::vector<std::string> bytes(vocab.size());
  std::vector<uint32_t> ends;
  for (const auto& item : vocab.items()) {
    const auto id = item.value().get<size_t>();
    if (id >= bytes.size()) return wrong();
    bytes[id] = BytesOfPiece(item.key());
    if (item.key() == "<eos>" || item.key() == "<end_of_turn>") {
      ends.push_back(static_cast<uint32_t>(id));
    }
  }
  for (const Json& token : json.value("added_tokens", Json::array())) {
    const auto id = token.at("id").get<size_t>();
    const std::string text = token.at("content");
    const bool unused = text.starts_with("<unused") || text == "[multimodal]" || text == "<mask>";
    if (id < bytes.size() && (token.value("special", false) || unused)) bytes[id].clear();
  }
  return TokenTrie::Create(std::move(bytes), std::move(ends));
}

std::vector<uint32_t> LongestTokens(const TokenTrie& trie, std::string_view text) {
  std::vector<uint32_t> tokens;
  while (!text.empty()) {
    uint32_t node = 0;
    uint32_t best = kNoToken;
    size_t length = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      const TrieNode& parent = trie.node(node);
      uint32_t next = kNoToken;
      for (uint32_t c = 0; c < parent.num_children; ++c) {
        if (trie.node(parent.first_child + c).byte == static_cast<uint8_t>(text[i])) {
          next = parent.first_child + c;
        }
      }
      if (next == kNoToken) break;
      node = next;
      if (trie.node(node).token == kNoToken) continue;
      best = trie.node(node).token;
      length = i + 1;
    }
    TANDEM_CHECK(best != kNoToken);
    tokens.push_back(best);
    text.remove_prefix(length);
  }
  return tokens;
}

}  // namespace tandem::gateway::constraint

#include "services/common/model/mmproj_name.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"

namespace tandem {
namespace {

constexpr std::string_view kSuffix = ".gguf";
constexpr std::string_view kMark = "mmproj";
// Words of file names that say nothing about the model.
constexpr std::array<std::string_view, 6> kOtherWords = {"mmproj", "model", "f16",
                                                         "bf16",   "f32",   "fp16"};

// The words of a file's name without its suffix, in lower case: "demo2", "q8", "0".
std::set<std::string> WordsOf(std::string_view file_name) {
  std::string name = absl::AsciiStrToLower(std::string(file_name));
  name.resize(name.size() - std::min(name.size(), kSuffix.size()));
  std::set<std::string> words;
  std::string word;
  for (const char c : name + "-") {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c))) {
      word += c;
    } else if (!word.empty()) {
      words.insert(std::exchange(word, ""));
    }
  }
  return words;
}

// Words that tell the model; "q8" and "0" of "Q8_0" are a number format.
std::set<std::string> ModelWords(std::string_view name) {
  std::set<std::string> words = WordsOf(name);
  for (const std::string_view other : kOtherWords) words.erase(std::string(other));
  if (words.contains("q8")) {
    words.erase("q8");
    words.erase("0");
  }
  return words;
}

// The place of an mmproj file's format among those to prefer; 0 is the best.
int FormatRank(std::string_view name) {
  const std::set<std::string> words = WordsOf(name);
  if (words.contains("f16") || words.contains("fp16")) return 0;
  if (words.contains("bf16")) return 1;
  if (words.contains("f32")) return 2;
  return words.contains("q8") ? 3 : 4;
}

bool Includes(const std::set<std::string>& all, const std::set<std::string>& some) {
  return std::includes(all.begin(), all.end(), some.begin(), some.end());
}

}  // namespace

bool IsMmprojName(std::string_view name) {
  const std::string lower = absl::AsciiStrToLower(std::string(name));
  return lower.ends_with(kSuffix) && lower.find(kMark) != std::string::npos;
}

bool MmprojBelongsTo(std::string_view mmproj, std::string_view model) {
  return Includes(WordsOf(model), ModelWords(mmproj));
}

std::optional<std::string> ChooseMmproj(std::string_view model,
                                        const std::vector<std::string>& names) {
  const std::set<std::string> model_words = WordsOf(model);
  using Rank = std::tuple<ptrdiff_t, int, std::string>;  // the smallest is chosen
  std::optional<Rank> best;
  for (const std::string& name : names) {
    if (!IsMmprojName(name)) continue;
    const std::set<std::string> words = ModelWords(name);
    if (!Includes(model_words, words)) continue;
    Rank rank{-static_cast<ptrdiff_t>(words.size()), FormatRank(name), name};
    if (!best.has_value() || rank < *best) best = std::move(rank);
  }
  if (!best.has_value()) return std::nullopt;
  return std::get<2>(*std::move(best));
}

}  // namespace tandem

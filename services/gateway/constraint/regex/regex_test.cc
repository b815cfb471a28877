#include <gtest/gtest.h>
#include <re2/re2.h>

#include <random>
#include <string>

#include "services/common/base/sanitized.h"
#include "services/gateway/constraint/regex/regex_arena.h"
#include "services/gateway/constraint/regex/regex_builder.h"

namespace tandem::gateway::constraint {
namespace {

bool Matches(RegexArena& arena, RegexId regex, std::string_view text) {
  for (const char c : text) regex = arena.Derive(regex, static_cast<uint8_t>(c));
  return arena.node(regex).nullable;
}

absl::Status ErrorOf(std::string_view pattern, const RegexOptions& options = {}) {
  RegexArena arena;
  return CompilePattern(pattern, options, false, Spelling::kPlain, arena).status();
}

// A random pattern of what RE2 and this parser share.  (?i) stands before a letter that no other
// atom has: RE2 forgets the other case in "b|(?i)b".
std::string RandomPattern(std::mt19937& random, int depth) {
  static const char* const kAtoms[] = {
      "a",   "b",      "ab",     ".",        "[ab]",      "[^a]",     "é",
      "日",  "\\d",    "\\w",    "\\s",      "\\pL",      "[a-cé-ü]", "[[:alpha:]]",
      "\\.", "\\x41",  "^",      "$",        "(?i:aB)",   "(?i)k",    "\\S",
      "\\n", "[^\\d]", "(?s:.)", "\\Qa+\\E", "\\x{65E5}", "\\W"};
  if (depth == 0 || random() % 4 == 0) return kAtoms[random() % std::size(kAtoms)];
  const uint32_t kind = random() % 5;
  const std::string first = RandomPattern(random, depth - 1);
  if (kind == 1) {
    static const char* const kRepeats[] = {"*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}", "*?"};
    return "(?:" + first + ")" + kRepeats[random() % 8];
  }
  const std::string second = RandomPattern(random, depth - 1);
  return kind == 0 ? "(" + first + "|" + second + ")" : first + second;
}

std::string RandomText(std::mt19937& random) {
  static const char* const kPieces[] = {"a", "b",  "B", "A", "é", "É", "ü",        "日", "1",
                                        " ", "\n", ".", "+", "c", "_", "\xC3\xA9", "k",  "K"};
  std::string text;
  for (size_t n = random() % 7; n > 0; --n) text += kPieces[random() % std::size(kPieces)];
  return text;
}

// RE2 is the judge: whole matches, and matches anywhere.
TEST(RegexTest, MatchesWhatRe2Matches) {
  std::mt19937 random(20);
  const int num_patterns = kSanitized ? 1000 : 4000;
  int matched = 0;
  for (int i = 0; i < num_patterns; ++i) {
    const std::string pattern = RandomPattern(random, 4);
    RE2::Options options;
    options.set_log_errors(false);
    const RE2 judge(pattern, options);
    RegexArena arena;
    const auto whole = CompilePattern(pattern, {}, false, Spelling::kPlain, arena);
    if (!judge.ok()) {
      EXPECT_FALSE(whole.ok()) << pattern;
      continue;
    }
    ASSERT_TRUE(whole.ok()) << pattern << ": " << whole.status();
    const auto anywhere = CompilePattern(pattern, {}, true, Spelling::kPlain, arena);
    ASSERT_TRUE(anywhere.ok()) << pattern << ": " << anywhere.status();
    for (int j = 0; j < 20; ++j) {
      const std::string text = RandomText(random);
      const bool expected = RE2::FullMatch(text, judge);
      matched += expected ? 1 : 0;
      ASSERT_EQ(Matches(arena, *whole, text), expected) << pattern << " with \"" << text << '"';
      ASSERT_EQ(Matches(arena, *anywhere, text), RE2::PartialMatch(text, judge))
          << pattern << " within \"" << text << '"';
    }
  }
  EXPECT_GT(matched, num_patterns / 4);
}

TEST(RegexTest, RefusesWhatNoAutomatonDecidesByName) {
  const std::pair<const char*, const char*> cases[] = {
      {"(a)\\1", "back-references are not supported at byte 3"},
      {"a(?=b)", "look-around is not supported at byte 1"},
      {"(?<!b)a", "look-around is not supported at byte 0"},
      {"a\\b", "\\b and \\B are not supported at byte 1"},
      {"(?m)^a$", "(?m) is not supported at byte 0"},
      {"a{70000}", "a repeat above 65536 at byte 1"},
      {"(a", "'(' without ')' at byte 0"},
      {"a)", "')' without '(' at byte 1"},
      {"[a", "'[' without ']' at byte 0"},
      {"*a", "nothing to repeat at byte 0"},
      {"a**", "a repeat of a repeat at byte 2"},
      {"\\p{Nonsense}", "an unknown class \\p{Nonsense} at byte 0"},
      {"a\xFF", "is not UTF-8 at byte 1"},
  };
  for (const auto& [pattern, message] : cases) {
    const absl::Status status = ErrorOf(pattern);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << pattern;
    EXPECT_NE(std::string(status.message()).find(message), std::string::npos)
        << pattern << ": " << status;
  }
  const std::string deep = std::string(5000, '(') + std::string(5000, ')');
  EXPECT_EQ(ErrorOf(deep).code(), absl::StatusCode::kInvalidArgument);
}

TEST(RegexTest, ReadsTheSpellingsOfEcmaScript) {
  RegexArena arena;
  const auto matches = [&](const char* pattern, std::string_view text) {
    const auto regex = CompilePattern(pattern, {.ecma = true}, false, Spelling::kPlain, arena);
    EXPECT_TRUE(regex.ok()) << pattern << ": " << regex.status();
    return regex.ok() && Matches(arena, *regex, text);
  };
  EXPECT_TRUE(matches("\\u0041\\/", "A/"));
  EXPECT_TRUE(matches("\\p{Letter}+", "aé日"));
  EXPECT_TRUE(matches("\\p{Script=Greek}", "α"));
  EXPECT_TRUE(matches("\\uD83D\\uDE00", "😀"));
  EXPECT_FALSE(matches("[]", ""));
  EXPECT_TRUE(matches("[^]", "x"));
  EXPECT_TRUE(matches("\\s", "\xC2\xA0"));
  EXPECT_TRUE(matches("[\\w-.]", "-"));
}

// Texts of JSON strings: each character in one way.
TEST(RegexTest, SpellsTextsOfJsonStrings) {
  RegexArena arena;
  const auto regex = CompilePattern("[\\x00-\\x{FFFF}]", {}, false, Spelling::kJson, arena);
  ASSERT_TRUE(regex.ok());
  for (const char* text : {"a", "\\\"", "\\\\", "\\n", "\\u0001", "é", "/"}) {
    EXPECT_TRUE(Matches(arena, *regex, text)) << text;
  }
  for (const char* text : {"\"", "\\", "\n", "\\/", "\\u0041", "\\u000a", "ab", "😀"}) {
    EXPECT_FALSE(Matches(arena, *regex, text)) << text;
  }
  EXPECT_EQ(JsonEscaped("a\"\\\n\x01é"), "a\\\"\\\\\\n\\u0001é");
}

TEST(RegexTest, FindsLanguagesWithoutATextDead) {
  RegexArena arena;
  const auto compile = [&](const char* pattern) {
    return *CompilePattern(pattern, {}, false, Spelling::kPlain, arena);
  };
  EXPECT_TRUE(arena.IsLive(arena.And(compile("a*b"), compile("[ab]{3}"))));
  EXPECT_FALSE(arena.IsLive(arena.And(compile("a+"), compile("b+"))));
  EXPECT_FALSE(arena.IsLive(arena.And(compile("[ab]*a"), compile("[ab]*b"))));
  EXPECT_FALSE(arena.IsLive(arena.And(compile("(aa)+"), compile("a(aa)*"))));
  EXPECT_FALSE(arena.IsLive(arena.And(compile("a*"), arena.Not(compile("(a|aa)*")))));
  EXPECT_TRUE(arena.IsLive(arena.And(compile("a*"), arena.Not(compile("(aa)*")))));
  // Branches that lead nowhere are not followed.
  const RegexId both = arena.And(compile("(x|y)*z"), compile("x*z|y+"));
  EXPECT_EQ(arena.Derive(both, 'y'), kNothing);
}

// Wherever a text of a pattern and a length stands, a way to its end is found without trying many.
TEST(RegexTest, FindsTheWayOutOfCountsWithinCountsQuickly) {
  for (const uint32_t longest : {1u, 2u, 7u, 200u, 5000u}) {
    RegexArena arena;
    const auto pattern =
        CompilePattern("^(?:\\S+\\s+){0,99}\\S+$", {.ecma = true}, false, Spelling::kJson, arena);
    ASSERT_TRUE(pattern.ok());
    const RegexId length =
        arena.Repeat(arena.Class(CodePointSet::All(), Spelling::kJson), 1, longest);
    RegexId state = arena.And(*pattern, length);
    size_t count = 0;  // code points
    for (const char* piece : {"a", " ", "\\n", " ", "b", "\\t", "\\\"", "\xC2\xA0", "c"}) {
      for (const char* byte = piece; *byte != 0; ++byte) {
        const uint64_t before = arena.steps();
        state = arena.Derive(state, static_cast<uint8_t>(*byte));
        EXPECT_LT(arena.steps() - before, 2000u) << longest << " at " << count;
      }
      ++count;
      // Text after a space is still to come.
      const bool ends = std::string_view(" \\n\\t\xC2\xA0").find(piece) == std::string_view::npos;
      EXPECT_EQ(state != kNothing, count + (ends ? 0 : 1) <= longest) << longest << " at " << count;
    }
  }
}

TEST(RegexTest, StaysWithinItsMemory) {
  RegexArena arena;
  arena.set_limit(1 << 20);
  const auto regex = CompilePattern("((a|b)*c(d|e)*){0,1000}(x{0,1000}y{0,1000}){500}", {}, false,
                                    Spelling::kPlain, arena);
  ASSERT_TRUE(regex.ok());
  RegexId state = *regex;
  for (int i = 0; i < 5000 && !arena.overflowed(); ++i) {
    state = arena.Derive(state, static_cast<uint8_t>("abcdexy"[i % 7]));
    if (state == kNothing) state = *regex;
  }
  EXPECT_LT(arena.memory_bytes(), size_t{8} << 20);
}

}  // namespace
}  // namespace tandem::gateway::constraint

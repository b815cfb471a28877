#include "services/gateway/constraint/constraint.h"

#include <gtest/gtest.h>

#include <random>

#include "services/gateway/constraint/constraint_source.h"
#include "services/gateway/constraint/testing/vocabularies.h"
#include "services/gateway/constraint/testing/walks.h"

namespace tandem::gateway::constraint {
namespace {

struct Case {
  const char* name;
  ConstraintSource source;
};

std::vector<Case> Cases() {
  const auto schema = [](const char* text) {
    return ConstraintSource{.kind = SourceKind::kJsonSchema, .text = text};
  };
  return {
      {"object", {.kind = SourceKind::kJsonObject}},
      {"person", schema(R"({"type":"object","properties":{"name":{"type":"string","minLength":2,
        "maxLength":5},"age":{"type":"integer","minimum":0,"maximum":150},"tags":{"type":"array",
        "items":{"enum":["a","ab","abc"]},"minItems":1}},"required":["name"],
        "additionalProperties":false})")},
      {"open keys", schema(R"({"type":"object","properties":{"name":{"type":"null"}},
        "patternProperties":{"^x":{"type":"number"}},"additionalProperties":{"type":"boolean"}})")},
      {"tree", schema(R"({"$defs":{"t":{"type":"object","properties":{"v":{"type":"integer"},
        "c":{"type":"array","items":{"$ref":"#/$defs/t"}}},"additionalProperties":false}},
        "$ref":"#/$defs/t"})")},
      {"words", schema(R"({"type":"string","pattern":"^[a-z]+( [a-z]+){0,3}$","maxLength":12})")},
      {"words within words", schema(R"({"type":"string","pattern":"^$|^(?:\\S+\\s+){0,2}\\S+$",
        "minLength":1,"maxLength":9})")},
      {"exact length", schema(R"({"type":"string","pattern":"[0-9a-f]+","minLength":6,
        "maxLength":6})")},
      {"within", schema(R"({"type":"string","pattern":"ab+c"})")},
      {"date", schema(R"({"type":"string","format":"date-time"})")},
      {"any order", schema(R"({"x-guidance":{"key_order":"any"},"type":"object","properties":{
        "a":{"type":"integer"},"b":{"type":"null"},"c":{"const":true}},"required":["a","c"],
        "additionalProperties":false})")},
      {"regex", {.kind = SourceKind::kRegex, .text = "(ab|a)*c{2,5}|\\p{Greek}+|日本?語*"}},
      {"free text", {.kind = SourceKind::kRegex, .text = "[^x]*"}},
      {"choices", {.kind = SourceKind::kChoices, .choices = {"yes", "yesterday", "no", "日"}}},
      {"gbnf",
       {.kind = SourceKind::kGbnf,
        .text = "root ::= list\nlist ::= \"[\" (item (\",\" item)*)? \"]\"\n"
                "item ::= list | [0-9]+ | \"é\""}},
      {"left recursion",
       {.kind = SourceKind::kGbnf,
        .text = "root ::= sum\nsum ::= sum \"+\" num | num\nnum ::= [0-9]{1,3}"}},
      {"ambiguous",
       {.kind = SourceKind::kGbnf, .text = "root ::= a\na ::= a a | \"a\" | \"b\" a \"b\" | \"\""}},
      {"lark",
       {.kind = SourceKind::kLark,
        .text = "start: pair (\",\" pair)*\npair: NAME \"=\" (INT | start2)\n"
                "start2: \"(\" start \")\"\nNAME: /[a-z]+/\n%import common.INT\n"
                "%import common.WS\n%ignore WS"}},
  };
}

// The mask of every state on random ways is exactly the set of tokens that Advance takes.
void ExpectMasksAreWhatAdvanceTakes(const Case& c, const std::shared_ptr<const TokenTrie>& trie,
                                    int walks, int steps) {
  const auto constraint = MakeConstraint(c.source, trie);
  ASSERT_TRUE(constraint.ok()) << c.name << ": " << constraint.status();
  std::mt19937 random(7);
  for (int walk = 0; walk < walks; ++walk) {
    auto state = (*constraint)->Start();
    ASSERT_TRUE(state.ok());
    std::string text;
    for (int step = 0; step < steps; ++step) {
      std::vector<uint32_t> mask(trie->mask_words());
      ASSERT_TRUE(state->Mask(mask).ok());
      std::vector<uint32_t> allowed;
      for (uint32_t token = 0; token < trie->vocab_size(); ++token) {
        ConstraintState next = *state;
        const auto taken = next.Advance(token);
        ASSERT_TRUE(taken.ok()) << taken.status();
        const bool masked = (mask[token / 32] >> (token % 32) & 1) != 0;
        ASSERT_EQ(masked, *taken) << c.name << ' ' << c.source.text << " token \""
                                  << trie->bytes(token) << "\" after " << text;
        if (*taken && !trie->IsEndToken(token)) allowed.push_back(token);
      }
      if (allowed.empty()) {
        EXPECT_TRUE(state->Done()) << c.name << " after " << text;
        break;
      }
      const uint32_t token = allowed[random() % allowed.size()];
      ASSERT_TRUE(*state->Advance(token));
      text += trie->bytes(token);
    }
  }
}

TEST(ConstraintTest, MasksAreWhatAdvanceTakes) {
  const auto trie = SmallVocabulary();
  for (const Case& c : Cases()) ExpectMasksAreWhatAdvanceTakes(c, trie, 12, 25);
}

// Tokens of up to kMostPieces code points, so many that the tables of classes and the subtrees of
// the vocabulary count.
constexpr int kMostPieces = 9;
std::shared_ptr<const TokenTrie> LargeVocabulary() {
  static const char* const kPieces[] = {"a", "b", "f", "s",  "k",        "-",  ".",   "/",
                                        "0", "7", ":", " ",  "\xC2\xA0", "é",  "日",  "語",
                                        "<", ",", "P", "\\", "\"",       "\n", "\\n", "😀"};
  std::mt19937 random(11);
  std::vector<std::string> tokens;
  for (int i = 0; i < 9000; ++i) {
    std::string token;
    // Many of letters alone.
    const size_t kinds = i % 3 == 0 ? std::size(kPieces) : i % 3 == 1 ? 5 : 14;
    for (size_t n = 1 + random() % kMostPieces; n > 0; --n) token += kPieces[random() % kinds];
    tokens.push_back(token);
  }
  return ByteVocabulary(tokens);
}

// Counts below, at and above what one token can take, alone and beside each other.
TEST(ConstraintTest, MasksOfCountsAreWhatAdvanceTakes) {
  const auto trie = LargeVocabulary();
  ASSERT_GT(trie->num_nodes(), 20'000u);
  std::vector<std::string> schemas;
  for (const int count : {0, 1, kMostPieces - 1, kMostPieces, kMostPieces + 1, 5000}) {
    const std::string n = std::to_string(count);
    schemas.push_back(R"({"type":"string","pattern":"^[a-s]{0,)" + n + R"(}$"})");
    schemas.push_back(R"({"type":"string","pattern":"^$|^(?:\\S+\\s+){0,)" + n +
                      R"(}\\S+$","maxLength":)" + n + "}");
    schemas.push_back(R"({"type":"string","pattern":"[a-s]*","minLength":)" + n +
                      R"(,"maxLength":)" + n + "}");
    if (count == 0 || count > 100) continue;
    schemas.push_back(R"({"type":"string","pattern":"[0-7]+","minLength":)" + n +
                      R"(,"maxLength":)" + n + "}");
    schemas.push_back(R"({"type":"string","pattern":"[a-s]{)" + n + R"(}[.]"})");
  }
  for (const std::string& text : schemas) {
    ExpectMasksAreWhatAdvanceTakes({"counts", {.kind = SourceKind::kJsonSchema, .text = text}},
                                   trie, 2, 4);
  }
}

// Texts that must not be within others, and ways that only few bytes lead to.
TEST(ConstraintTest, MasksAroundExcludedTextsAreWhatAdvanceTakes) {
  const auto trie = LargeVocabulary();
  for (const char* text : {
           R"({"type":"string","pattern":"^(?!.*(:|<|sk|/P)).*\\.[ks]$"})",
           R"({"type":"string","pattern":"^[^:,]+$"})",
           R"({"type":"string","pattern":"^..-?..:.$"})",
           R"({"type":"string","pattern":"^(/|(/[^/]+)+)$","maxLength":12})",
           R"({"type":"object","patternProperties":{"abfP":{"const":1},"sks":{"const":2}},
               "additionalProperties":{"const":3}})",
           R"({"type":"object","properties":{"ab":{},"ask":{},"fab":{}},
               "patternProperties":{"^sk:.*":{"const":1}},"additionalProperties":{"const":3}})",
       }) {
    ExpectMasksAreWhatAdvanceTakes({"excluded", {.kind = SourceKind::kJsonSchema, .text = text}},
                                   trie, 3, 5);
  }
}

// Searches, alone and beside lengths and other patterns; and classes whose short texts all fit, but not the long ones.
TEST(ConstraintTest, MasksOfSearchesAndOfShortTextsAreWhatAdvanceTakes) {
  const auto trie = LargeVocabulary();
  for (const char* text : {
           R"({"type":"string","pattern":"[07]+-[abf]*-[abf]{4}","minLength":12})",
           R"({"type":"string","pattern":"[07]+-[abf]*-[abf]{4}","minLength":12,"maxLength":15})",
           R"({"type":"string","pattern":"^ab|fs|ask$"})",
           R"({"type":"string","pattern":"^ab|fs|ask$","minLength":4,"maxLength":8})",
           R"({"type":"string","pattern":"^....-..:.*$"})",
           R"({"type":"string","pattern":"^[a-s]([a-s0-7-]{0,9}[a-s0-7])?([.][a-s]+)*$"})",
           R"({"type":"string","format":"email","pattern":"^.*?@.*.*$","minLength":3})",
           R"({"type":"object","patternProperties":{".*":{},".*abfskabfsk.*":{"const":1}},
               "additionalProperties":false})",
       }) {
    ExpectMasksAreWhatAdvanceTakes({"searched", {.kind = SourceKind::kJsonSchema, .text = text}},
                                   trie, 3, 5);
  }
}

// How a text is cut into tokens does not count.
TEST(ConstraintTest, AcceptsTheSameTextsInAnyTokens) {
  const auto small = SmallVocabulary();
  const auto bytes = ByteVocabulary();
  std::mt19937 random(3);
  for (const Case& c : Cases()) {
    const auto with_pieces = MakeConstraint(c.source, small);
    const auto with_bytes = MakeConstraint(c.source, bytes);
    ASSERT_TRUE(with_pieces.ok() && with_bytes.ok()) << c.name;
    int finished = 0;
    for (int i = 0; i < 40; ++i) {
      const auto text = RandomWalk(**with_pieces, *small, random, 3, 400);
      ASSERT_TRUE(text.ok()) << c.name << ": " << text.status();
      if (!*text) continue;
      ++finished;
      EXPECT_TRUE(*Accepts(**with_bytes, *bytes, **text)) << c.name << ": " << **text;
      std::string changed = **text;
      if (!changed.empty())
        changed[random() % changed.size()] ^= static_cast<char>(1 + random() % 3);
      EXPECT_EQ(*Accepts(**with_bytes, *bytes, changed), *Accepts(**with_pieces, *small, changed))
          << c.name << ": " << changed;
    }
    EXPECT_GT(finished, 0) << c.name;
  }
}

TEST(ConstraintTest, EndsWhereTheTextMayEnd) {
  const auto trie = ByteVocabulary();
  const auto constraint = MakeConstraint({.kind = SourceKind::kRegex, .text = "ab?"}, trie);
  ASSERT_TRUE(constraint.ok());
  auto state = (*constraint)->Start();
  const auto byte = [](char c) { return 2 + static_cast<uint32_t>(static_cast<uint8_t>(c)); };
  EXPECT_FALSE(*state->Advance(kEndToken));
  ASSERT_TRUE(*state->Advance(byte('a')));
  EXPECT_TRUE(state->Accepting());
  EXPECT_FALSE(state->Done());
  ConstraintState copy = *state;
  ASSERT_TRUE(*copy.Advance(kEndToken));
  EXPECT_TRUE(copy.Done());
  EXPECT_FALSE(*copy.Advance(byte('b')));
  ASSERT_TRUE(*state->Advance(byte('b')));
  EXPECT_TRUE(state->Done());
  EXPECT_FALSE(*state->Advance(byte('b')));
  EXPECT_FALSE(*state->Advance(1)) << "a control token";
  EXPECT_FALSE(*state->Advance(100'000)) << "a token outside of the vocabulary";
}

TEST(ConstraintTest, GivesTheBytesThatMustFollow) {
  const auto trie = ByteVocabulary();
  const auto constraint = MakeConstraint(
      {.kind = SourceKind::kJsonSchema,
       .text = R"({"x-guidance":{"whitespace_flexible":false},"type":"object","properties":{
          "kind":{"const":"circle"},"radius":{"type":"integer"}},"required":["kind","radius"],
          "additionalProperties":false})"},
      trie);
  ASSERT_TRUE(constraint.ok()) << constraint.status();
  auto state = (*constraint)->Start();
  EXPECT_EQ(*state->ForcedBytes(), R"({"kind":"circle","radius":)");
  EXPECT_EQ(*state->ForcedBytes(5), R"({"kin)");
  for (const uint32_t token : LongestTokens(*trie, R"({"kind":"circle","radius":7)")) {
    ASSERT_TRUE(*state->Advance(token));
  }
  EXPECT_EQ(*state->ForcedBytes(), "");
}

// A forced token is given only where no longer token could take its place.
TEST(ConstraintTest, GivesForcedTokensThatTheModelWouldWrite) {
  const auto trie = ByteVocabulary({"cir", "cle", "cle\"", "\"r", "\"radius\"", "circle"});
  const auto encode = [&](std::string_view text) { return LongestTokens(*trie, text); };
  const auto forced = [&](const char* pattern) {
    const auto constraint = MakeConstraint({.kind = SourceKind::kRegex, .text = pattern}, trie);
    EXPECT_TRUE(constraint.ok());
    auto state = (*constraint)->Start();
    std::string text;
    const auto tokens = state->ForcedTokens(encode);
    for (const uint32_t token : *tokens) text += trie->bytes(token);
    return text;
  };
  EXPECT_EQ(forced("circle"), "circle");
  EXPECT_EQ(forced("circle!"), "circle!");
  // "cle" may become the token cle", so it is left to the model.
  EXPECT_EQ(forced("\"circle(\"|!)"), "\"circle");
  EXPECT_EQ(forced("a|b"), "");
  EXPECT_EQ(forced("x\"r(adius\"|!)"), "x");
}

TEST(ConstraintTest, KeepsWithinItsMemory) {
  const auto trie = SmallVocabulary();
  // Every text has a state of its own.
  const auto grammar =
      CompileSource({.kind = SourceKind::kGbnf,
                     .text = "root ::= p\np ::= \"a\" p \"a\" | \"b\" p \"b\" | \"c\""});
  ASSERT_TRUE(grammar.ok());
  const MatcherLimits limits{.cache_bytes = 100'000, .memory_bytes = 200'000};
  const auto constraint = Constraint::Create(*grammar, trie, limits);
  std::mt19937 random(1);
  bool refused = false;
  for (int walk = 0; walk < 20 && !refused; ++walk) {
    auto state = constraint->Start();
    ASSERT_TRUE(state.ok()) << "a new start has its memory again";
    std::vector<uint32_t> mask(trie->mask_words());
    for (int i = 0; i < 20'000 && !refused; ++i) {
      const uint32_t token = LongestTokens(*trie, random() % 2 == 0 ? "a" : "b")[0];
      const auto taken = state->Advance(token);
      refused = !taken.ok() || !state->Mask(mask).ok();
    }
    EXPECT_LT(constraint->memory_bytes(), 2'000'000u);
  }
  EXPECT_TRUE(refused);
  EXPECT_TRUE(constraint->Start().ok());
}

}  // namespace
}  // namespace tandem::gateway::constraint

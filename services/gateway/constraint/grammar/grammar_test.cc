#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/gateway/constraint/constraint_source.h"
#include "services/gateway/constraint/testing/vocabularies.h"
#include "services/gateway/constraint/testing/walks.h"

namespace tandem::gateway::constraint {
namespace {

struct Case {
  SourceKind kind;
  std::string grammar;
  std::vector<std::string> accepted;
  std::vector<std::string> refused;
};

void Check(const Case& c) {
  const auto trie = ByteVocabulary();
  const auto constraint = MakeConstraint({.kind = c.kind, .text = c.grammar}, trie);
  ASSERT_TRUE(constraint.ok()) << c.grammar << "\n" << constraint.status();
  for (const std::string& text : c.accepted) {
    EXPECT_TRUE(*Accepts(**constraint, *trie, text)) << c.grammar << "\n" << text;
  }
  for (const std::string& text : c.refused) {
    EXPECT_FALSE(*Accepts(**constraint, *trie, text)) << c.grammar << "\n" << text;
  }
}

void CheckError(SourceKind kind, const std::string& grammar, const std::string& message) {
  const auto compiled = CompileSource({.kind = kind, .text = grammar});
  ASSERT_FALSE(compiled.ok()) << grammar;
  EXPECT_EQ(compiled.status().code(), absl::StatusCode::kInvalidArgument) << compiled.status();
  EXPECT_NE(std::string(compiled.status().message()).find(message), std::string::npos)
      << grammar << "\n"
      << compiled.status();
}

TEST(GrammarTest, ReadsGbnf) {
  const auto kGbnf = SourceKind::kGbnf;
  Check({kGbnf, "root ::= \"a\" | \"b\"+ # comment\n", {"a", "b", "bbb"}, {"", "ab"}});
  Check({kGbnf,
         "root ::= [a-z]{2,3} [^0-9\\n]?\n",
         {"ab", "abc", "ab!", "abé"},
         {"a", "ab1", "ab\n"}});
  Check({kGbnf,
         "root ::= (\"x\" |\n  \"y\")* end\nend ::= \"\\n\" | \"\\x41\\u00e9\"",
         {"xy\n", "Aé"},
         {"xy"}});
  Check({kGbnf, "root ::= \"(\" root \")\" | \"\"", {"", "()", "((()))"}, {"(", "(()", "())"}});
  Check({kGbnf, "root ::= e\ne ::= e \"-\" e | n\nn ::= [0-9]+", {"1", "1-2-3"}, {"-1", "1-", ""}});
  Check({kGbnf,
         "root ::= a b\na ::= \"x\"*\nb ::= a \"y\" b | \"\"",
         {"", "x", "xxyxy", "yy"},
         {"z"}});
  Check({kGbnf,
         "root ::= ws obj\nobj ::= \"{\" ws \"}\"\nws ::= [ \\t\\n]{0,2}",
         {"{}", " { }"},
         {"   {}"}});
  Check({kGbnf, "root-1 ::= \"a\"\nroot ::= root-1{3}", {"aaa"}, {"aa", "aaaa"}});
  Check({kGbnf, "root ::= . .\n", {"ab", "日本", "😀\n"}, {"a", "abc"}});
}

TEST(GrammarTest, ReadsLark) {
  const auto kLark = SourceKind::kLark;
  Check({kLark, "start: \"a\" | \"b\"+ // comment\n", {"a", "b", "bb"}, {"", "ab"}});
  Check({kLark,
         R"(?start: value
value: object | array | ESCAPED_STRING | SIGNED_NUMBER | "true" -> yes
     | "null"
array  : "[" [value ("," value)*] "]"
object : "{" [pair ("," pair)*] "}"
pair   : ESCAPED_STRING ":" value
%import common.ESCAPED_STRING
%import common.SIGNED_NUMBER
%import common.WS
%ignore WS
)",
         {R"({"a": [1, -2.5e3, {}], "b" : "x\"y"})", " [ ] ", "true", "null\n", "\"\""},
         {"{", R"({"a"})", "[1,]", "nulll", "\"a\nb\""}});
  Check({kLark,
         "start: NAME~2..3 \"!\"i?\nNAME.2: (\"a\"..\"c\" | /[x-z]/i)\n",
         {"ab", "axZ", "cc"},
         {"a", "abca"}});
  Check({kLark,
         "start: \"Hello\"i WORLD\nWORLD: \" \" /w.rld/s\n",
         {"hELLO w\nrld"},
         {"Hello", "Hello World"}});
  Check({kLark,
         "start: (A\n  | B)+\n\nA: \"x\"\nB: \"\\u00e9\" \"\\n\"\n",
         {"x", "xé\nx"},
         {"", "é"}});
  Check({kLark,
         "start: A | start \",\" A\n%import common (INT, WS_INLINE)\n%import common.CNAME -> "
         "A\n%ignore WS_INLINE",
         {"a", "a , b1,_c"},
         {",", "1", "a b"}});
  Check({kLark,
         "start: \"x\" C \"y\"\nC: C_COMMENT\n%import common.C_COMMENT",
         {"x/* a * b **/y"},
         {"x/* */ */y", "x/**"}});
}

TEST(GrammarTest, NamesThePlaceOfAMistake) {
  const auto kGbnf = SourceKind::kGbnf;
  CheckError(kGbnf, "a ::= \"x\"", "GBNF: line 1, column 10: no rule is named root");
  CheckError(kGbnf, "root ::= \"x\"\nroot ::= \"y\"",
             "GBNF: line 2, column 1: rule root is given twice");
  CheckError(kGbnf, "root ::= a b\na ::= \"x\"",
             "GBNF: line 1, column 12: rule b is used and not given");
  CheckError(kGbnf, "root ::= \"x", "a literal without an end");
  CheckError(kGbnf, "root ::= [a-", "'[' without ']'");
  CheckError(kGbnf, "root ::= <[12]>", "tokens");
  CheckError(kGbnf, "root ::= \"\\q\"", "an unknown escape");
  CheckError(kGbnf, "root ::= \"a\"{5,2}", "below its minimum");
  CheckError(kGbnf, "root ::= root \"a\"", "never ends");
  CheckError(kGbnf, "root ::= " + std::string(1000, '(') + "\"a\"" + std::string(1000, ')'),
             "nested deeper");
  const auto kLark = SourceKind::kLark;
  CheckError(kLark, "a: \"x\"", "no rule is named start");
  CheckError(kLark, "start: b", "Lark: line 1, column 8: rule b is used and not given");
  CheckError(kLark, "start: \"x\"\nstart: \"y\"", "Lark: line 2, column 1: start is given twice");
  CheckError(kLark, "start: A\nA: b\nb: \"x\"", "a terminal cannot use the rule b");
  CheckError(kLark, "start: /a(?=b)/", "look-around is not supported");
  CheckError(kLark, "start: /a/x", "the flag x is not supported");
  CheckError(kLark, "start: a{\"x\"}\na{b}: b", "templates are not supported");
  CheckError(kLark, "%declare A\nstart: A", "%declare is not supported");
  CheckError(kLark, "%import python.NAME\nstart: NAME", "common alone");
  CheckError(kLark, "%import common.NONSENSE\nstart: NONSENSE", "common has no terminal NONSENSE");
  CheckError(kLark, "start: start \"a\"", "never ends");
  CheckError(kLark, "start: \"a\" )", "a new line is expected");
}

TEST(GrammarTest, RefusesBombsWithinABudget) {
  const absl::Time begin = absl::Now();
  // Rules that double each other: 2^60 letters.
  std::string doubling = "root ::= a0\n";
  for (int i = 0; i < 60; ++i) {
    doubling += absl::StrFormat("a%d ::= a%d a%d\n", i, i + 1, i + 1);
  }
  doubling += "a60 ::= \"x\"\n";
  const auto compiled = CompileSource({.kind = SourceKind::kGbnf, .text = doubling});
  EXPECT_EQ(compiled.status().code(), absl::StatusCode::kResourceExhausted) << compiled.status();
  // Large counts of large counts cost what a text reads of them.
  for (const std::string& text :
       {std::string("root ::= ((\"a\"{1000000}){1000000}){1000000}"),
        std::string("root ::= (\"a\"? | \"b\"{0,1000000})* root | \"c\"")}) {
    const auto trie = SmallVocabulary();
    const auto constraint = MakeConstraint({.kind = SourceKind::kGbnf, .text = text}, trie);
    if (!constraint.ok()) continue;
    auto state = (*constraint)->Start();
    ASSERT_TRUE(state.ok());
    std::vector<uint32_t> mask(trie->mask_words());
    for (int i = 0; i < 300; ++i) {
      if (!state->Mask(mask).ok()) break;
      const auto taken = state->Advance(LongestTokens(*trie, "a")[0]);
      if (!taken.ok()) break;
      EXPECT_TRUE(*taken);
    }
    EXPECT_LT((*constraint)->memory_bytes(), size_t{32} << 20);
  }
  EXPECT_LT(absl::Now() - begin, absl::Seconds(60));
}

TEST(GrammarTest, CompilesChoices) {
  const auto trie = ByteVocabulary();
  const auto constraint =
      MakeConstraint({.kind = SourceKind::kChoices, .choices = {"a", "ab", "日本", "\"x\n"}}, trie);
  ASSERT_TRUE(constraint.ok());
  for (const char* text : {"a", "ab", "日本", "\"x\n"}) {
    EXPECT_TRUE(*Accepts(**constraint, *trie, text)) << text;
  }
  for (const char* text : {"", "b", "日", "abc"}) {
    EXPECT_FALSE(*Accepts(**constraint, *trie, text)) << text;
  }
  EXPECT_EQ(CompileSource({.kind = SourceKind::kChoices}).status().message(),
            "choices: 0 are given; 1 to 10000 may be");
  EXPECT_EQ(
      CompileSource({.kind = SourceKind::kChoices, .choices = {"a", "\xFF"}}).status().message(),
      "choices[1]: is not UTF-8");
}

}  // namespace
}  // namespace tandem::gateway::constraint

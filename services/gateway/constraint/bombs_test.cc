// Sources that are made to take a compiler's stack, time or memory.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>

#include <ctime>
#include <functional>
#include <string>

#include "absl/strings/str_format.h"
#include "services/common/base/sanitized.h"
#include "services/gateway/constraint/constraint.h"
#include "services/gateway/constraint/constraint_source.h"
#include "services/gateway/constraint/testing/vocabularies.h"
#include "services/gateway/constraint/testing/walks.h"
#include "services/gateway/constraint/work_time.h"

namespace tandem::gateway::constraint {
namespace {

// On a thread with a quarter of the usual stack, or half of it under sanitizers.
void RunOnSmallStack(const std::function<void()>& work) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, size_t{kSanitized ? 4 : 2} << 20), 0);
  pthread_t thread;
  ASSERT_EQ(pthread_create(
                &thread, &attributes,
                [](void* of) -> void* {
                  (*static_cast<const std::function<void()>*>(of))();
                  return nullptr;
                },
                const_cast<std::function<void()>*>(&work)),
            0);
  ASSERT_EQ(pthread_join(thread, nullptr), 0);
  pthread_attr_destroy(&attributes);
}

std::string Repeated(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

// Compiles it, and makes a mask and takes a token where that goes well.
absl::Status Follow(SourceKind kind, const std::string& text,
                    absl::Duration time = absl::Seconds(10)) {
  absl::Status status;
  RunOnSmallStack([&] {
    auto grammar = CompileSource({.kind = kind, .text = text}, {.deadline = WorkTime() + time});
    if (!grammar.ok()) {
      status = grammar.status();
      return;
    }
    const auto trie = SmallVocabulary();
    const auto constraint = Constraint::Create(*std::move(grammar), trie);
    auto state = constraint->Start();
    if (!state.ok()) {
      status = state.status();
      return;
    }
    std::vector<uint32_t> mask(trie->mask_words());
    status = state->Mask(mask);
    if (status.ok()) status = state->Advance(LongestTokens(*trie, "a")[0]).status();
  });
  return status;
}

TEST(BombsTest, RepeatsOfRepeatsAndChainsOfRulesLeaveTheStackAlone) {
  for (const char* repeat : {"+", "*", "?", "{2}", "{0,3}"}) {
    const std::string gbnf = "root ::= \"a\"" + Repeated(repeat, 200'000);
    EXPECT_TRUE(absl::IsInvalidArgument(Follow(SourceKind::kGbnf, gbnf))) << repeat;
  }
  for (const char* repeat : {"+", "*", "?", "~2", "~0..3"}) {
    const std::string lark = "start: \"a\"" + Repeated(repeat, 200'000);
    EXPECT_TRUE(absl::IsInvalidArgument(Follow(SourceKind::kLark, lark))) << repeat;
  }
  for (const char* use : {"r%d+ \"x\"", "(\"y\" | r%d \"x\")*", "r%d? \"x\"{3} r%d"}) {
    for (const int count : {300, 900, 3000, 20'000}) {
      std::string chain = "root ::= r0\n";
      for (int i = 0; i < count; ++i) {
        std::string body = use;
        for (size_t at; (at = body.find("%d")) != std::string::npos;) {
          body.replace(at, 2, std::to_string(i + 1));
        }
        chain += absl::StrFormat("r%d ::= %s\n", i, body);
      }
      chain += absl::StrFormat("r%d ::= \"a\"\n", count);
      const absl::Status status = Follow(SourceKind::kGbnf, chain, absl::Seconds(3));
      EXPECT_TRUE(status.ok() || absl::IsResourceExhausted(status)) << count << ": " << status;
    }
  }
  // Long, and not deep.
  EXPECT_EQ(Follow(SourceKind::kRegex, Repeated("[ab]", 20'000)), absl::OkStatus());
  EXPECT_EQ(Follow(SourceKind::kRegex, Repeated("a", 100'000)), absl::OkStatus());
}

// Terminals that share what they are made of: few nodes, and ways through them without number.
TEST(BombsTest, SharedTerminalsAreNotFollowedWayByWay) {
  for (const char* body :
       {R"(T%d "a" | ("z" | T%d "y") "c")", R"("a" T%d | "c" ("z" | "y" T%d))"}) {
    for (const char* last : {"/[^x]+/", "/[a-z]/", "/[^x]*y/"}) {
      std::string lark = "start: T0\n";
      for (int i = 0; i < 60; ++i) {
        std::string rule = body;
        for (size_t at; (at = rule.find("%d")) != std::string::npos;) {
          rule.replace(at, 2, std::to_string(i + 1));
        }
        lark += absl::StrFormat("T%d: %s\n", i, rule);
      }
      lark += absl::StrFormat("T60: %s\n", last);
      const std::clock_t begin = std::clock();
      const absl::Status status = Follow(SourceKind::kLark, lark, absl::Seconds(3));
      EXPECT_TRUE(status.ok() || absl::IsResourceExhausted(status)) << last << ": " << status;
      EXPECT_LT(std::clock() - begin, (kSanitized ? 20 : 2) * CLOCKS_PER_SEC) << body << last;
    }
  }
}

TEST(BombsTest, ReadingAndBuildingKeepTheirTimeAndMemory) {
  std::string classes;
  for (int i = 0; i < 100'000; ++i) classes += absl::StrFormat("[a\\x{%x}]", 0x100 + i);
  const std::pair<SourceKind, std::string> bombs[] = {
      {SourceKind::kRegex, "(?i)" + Repeated("\\pL", 300'000)},
      {SourceKind::kRegex, Repeated("\\pL", 300'000)},
      {SourceKind::kRegex, Repeated("(|)", 300'000)},
      {SourceKind::kRegex, classes},
      {SourceKind::kRegex, Repeated("[a]", 300'000)},
      {SourceKind::kGbnf, "root ::= " + Repeated("[^a]", 200'000)},
      {SourceKind::kJsonSchema,
       R"({"type": "string", "pattern": ")" + Repeated("\\\\pL\\\\PN", 50'000) + "\"}"},
  };
  for (const auto& [kind, text] : bombs) {
    const std::clock_t begin = std::clock();
    const absl::Status status = Follow(kind, text, absl::Seconds(1));
    // Some are only long.
    EXPECT_TRUE(status.ok() || absl::IsResourceExhausted(status) || absl::IsInvalidArgument(status))
        << status;
    EXPECT_LT(std::clock() - begin, (kSanitized ? 30 : 5) * CLOCKS_PER_SEC) << text.substr(0, 40);
  }
  rusage usage;
  ::getrusage(RUSAGE_SELF, &usage);
  if (!kSanitized) {
    EXPECT_LT(usage.ru_maxrss, 600 << 10) << "KiB";
  }
}

// What one text takes is not held against the others of the same source.
TEST(BombsTest, ATextThatTakesTooMuchLeavesOthersAlone) {
  const auto trie = SmallVocabulary();
  auto grammar = CompileSource({.kind = SourceKind::kRegex, .text = "a(.*b.{9}c)?|d*"});
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  const auto constraint = Constraint::Create(*std::move(grammar), trie, {.call_work = 20});
  std::vector<uint32_t> mask(trie->mask_words());
  auto state = constraint->Start();
  ASSERT_TRUE(state.ok());
  EXPECT_TRUE(absl::IsResourceExhausted(state->Mask(mask)));
  auto other = constraint->Start();
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_TRUE(*other->Advance(LongestTokens(*trie, "d")[0])) << "no mask is needed for it";
}

}  // namespace
}  // namespace tandem::gateway::constraint

#include "services/common/flags/parse_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tandem {
namespace {

using ::testing::HasSubstr;

struct Outcome {
  std::optional<int> code;
  std::string output, errors;
};

Outcome Parse(CLI::App& app, std::vector<std::string> words) {
  words.insert(words.begin(), "/somewhere/program");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Outcome outcome;
  outcome.code = ParseFlags(app, static_cast<int>(argv.size()), argv.data());
  std::fflush(stdout);
  outcome.output = testing::internal::GetCapturedStdout();
  outcome.errors = testing::internal::GetCapturedStderr();
  return outcome;
}

TEST(ClosestWordTest, FindsMisspellingsAndNothingFarAway) {
  const std::vector<std::string> words = {"serve", "status", "stop", "generate"};
  EXPECT_EQ(ClosestWord("srve", words), "serve");
  EXPECT_EQ(ClosestWord("sevre", words), "serve");
  EXPECT_EQ(ClosestWord("stauts", words), "status");
  EXPECT_EQ(ClosestWord("gen", words), "generate");
  EXPECT_EQ(ClosestWord("xylophone", words), "");
  EXPECT_EQ(ClosestWord("", words), "");
}

class ParseFlagsTest : public testing::Test {
 protected:
  ParseFlagsTest() { app_.add_option("--rows", rows_)->required(); }
  CLI::App app_{"Does nothing.", "program"};
  int rows_ = 0;
};

TEST_F(ParseFlagsTest, AGoodCommandLineGoesOn) {
  EXPECT_EQ(Parse(app_, {"--rows", "3"}).code, std::nullopt);
  EXPECT_EQ(rows_, 3);
}

TEST_F(ParseFlagsTest, HelpIsASuccessOnStandardOutput) {
  const Outcome outcome = Parse(app_, {"--help"});
  EXPECT_EQ(outcome.code, kExitSuccess);
  EXPECT_THAT(outcome.output, HasSubstr("Usage: program"));
  EXPECT_EQ(outcome.errors, "");
}

TEST_F(ParseFlagsTest, UsageErrorsAreOneLineAndStatusTwo) {
  const Outcome missing = Parse(app_, {});
  EXPECT_EQ(missing.code, kExitUsage);
  EXPECT_EQ(missing.errors, "program: --rows is required (`program --help` lists the flags)\n");
  EXPECT_EQ(Parse(app_, {"--rows", "many"}).code, kExitUsage);
  EXPECT_EQ(Parse(app_, {"--rows", "1", "word"}).errors,
            "program: 'word' is an argument too many (`program --help` lists the flags)\n");
}

TEST_F(ParseFlagsTest, AMisspeltFlagIsNamedWithASuggestion) {
  EXPECT_THAT(Parse(app_, {"--rows", "1", "--row=2"}).errors,
              HasSubstr("there is no flag --row; did you mean --rows?"));
  EXPECT_THAT(Parse(app_, {"--rosw", "1"}).errors, HasSubstr("did you mean --rows?"));
}

TEST_F(ParseFlagsTest, ASubcommandsErrorNamesTheSubcommand) {
  CLI::App app("Does nothing.", "program");
  int rows = 0;
  app.add_subcommand("run")->add_option("--rows", rows);
  const Outcome outcome = Parse(app, {"run", "--rwos", "1"});
  EXPECT_EQ(outcome.code, kExitUsage);
  EXPECT_EQ(outcome.errors,
            "program run: there is no flag --rwos; did you mean --rows? "
            "(`program run --help` lists the flags)\n");
}

}  // namespace
}  // namespace tandem

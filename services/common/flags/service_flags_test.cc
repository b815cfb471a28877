#include "services/common/flags/service_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "services/common/flags/manual_page.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ServiceFlagsTest : public ::testing::Test {
 protected:
  ServiceFlagsTest() {
    app_.add_option("--name", name_, "Name in the cluster");
    app_.add_option("--root", roots_);
    app_.add_option("--rows", rows_);
    app_.add_flag("!--no-import", import_);
    AddServiceFlags(app_, "tandem-example");
    char pattern[] = "/tmp/tandem-config-XXXXXX";
    ::close(::mkstemp(pattern));
    path_ = pattern;
  }
  ~ServiceFlagsTest() override { ::unlink(path_.c_str()); }

  void Parse(const std::string& config, std::vector<std::string> arguments = {}) {
    std::ofstream(path_) << config;
    arguments.insert(arguments.begin(), {path_, "--config"});  // the last one first
    app_.parse(arguments);
  }

  CLI::App app_{"Does nothing."};
  std::string path_;
  std::string name_ = "none";
  std::vector<std::string> roots_;
  int rows_ = 0;
  bool import_ = true;
};

TEST_F(ServiceFlagsTest, FlagsCanBeGivenInAFile) {
  Parse("# a comment\nname = \"gpu0\"\nroot = [\"/a\", \"/b c\"]\nrows = 64\nno-import = true\n");
  EXPECT_EQ(name_, "gpu0");
  EXPECT_EQ(roots_, (std::vector<std::string>{"/a", "/b c"}));
  EXPECT_EQ(rows_, 64);
  EXPECT_FALSE(import_);
}

TEST_F(ServiceFlagsTest, TheCommandLineIsStronger) {
  Parse("name = \"file\"\nrows = 64\n", {"line", "--name"});
  EXPECT_EQ(name_, "line");
  EXPECT_EQ(rows_, 64);
}

TEST_F(ServiceFlagsTest, MisspeltKeysAndMissingFilesAreErrors) {
  EXPECT_THROW(Parse("naem = \"gpu0\"\n"), CLI::ParseError);
  EXPECT_THROW(app_.parse(std::vector<std::string>{"/nonexistent/file", "--config"}),
               CLI::ParseError);
}

TEST_F(ServiceFlagsTest, WhatIsWrongInAFileIsNamedByFileLineAndKey) {
  const auto error = [this](const std::string& config) -> std::string {
    try {
      Parse(config);
    } catch (const CLI::ParseError& refused) {
      app_.clear();
      return refused.what();
    }
    return "";
  };
  EXPECT_EQ(error("\nrows = \"many\"\n"), path_ + ":2: rows: 'many' is no INT");
  EXPECT_EQ(error("name = [\"a\", \"b\"]\n"),
            path_ + ":1: name: one value is expected, not a list");
  EXPECT_EQ(error("no-import = 1\n"), path_ + ":1: no-import: true or false is expected");
  EXPECT_EQ(error("naem = \"a\"\n"), path_ + ":1: naem: no such flag; did you mean name?");
  EXPECT_EQ(error("manual = true\n"), path_ + ":1: manual: no such flag");
  EXPECT_THAT(error("rows = 1\nname = gpu0\n"), HasSubstr(path_ + ":2: not TOML: "));
}

TEST_F(ServiceFlagsTest, AListMayTakeSeveralLines) {
  Parse("root = [\n  \"/a\",  # one\n  \"/b\",\n]\nno-import = false\n");
  EXPECT_EQ(roots_, (std::vector<std::string>{"/a", "/b"}));
  EXPECT_TRUE(import_);
}

TEST_F(ServiceFlagsTest, AnEmptyTextIsAValueAndAnEmptyListIsNone) {
  Parse("name = \"\"\nroot = []\n");
  EXPECT_EQ(name_, "");
  EXPECT_TRUE(roots_.empty());
}

TEST_F(ServiceFlagsTest, AnEmptyFileChangesNothing) {
  Parse("# name = \"gpu0\"\n");
  EXPECT_EQ(name_, "none");
}

TEST_F(ServiceFlagsTest, TheManualPageHasWhatHelpShows) {
  const std::string page =
      ManualOf(app_, {.section = 8, .version = "1.2", .description = "Text.\n"});
  EXPECT_THAT(page, HasSubstr(".TH TANDEM-EXAMPLE 8"));
  EXPECT_THAT(page, HasSubstr("tandem\\-example \\- Does nothing\n"));
  EXPECT_THAT(page, HasSubstr("\\fB\\-\\-name\\fR"));
  EXPECT_THAT(page, HasSubstr("Name in the cluster.\n"));
  EXPECT_THAT(page, Not(HasSubstr("manual")));
}

TEST_F(ServiceFlagsTest, TheManualIsPrintedWhateverElseIsMissing) {
  app_.get_option("--name")->required();
  EXPECT_THROW(app_.parse(std::vector<std::string>{"--manual"}), CLI::Success);
}

}  // namespace
}  // namespace tandem

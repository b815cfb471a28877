#include "services/common/version/version.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem {
namespace {

using ::testing::MatchesRegex;

TEST(VersionTest, NamesTheProgramTheCommitAndTheBuild) {
  EXPECT_THAT(VersionText("tandem"),
              MatchesRegex("tandem [0-9]+\\.[0-9]+\\.[0-9]+\ncommit: unknown\nbuild: [A-Za-z]+.*, "
                           "(GCC|Clang) [0-9]+\\.[0-9]+\\.[0-9]+"));
}

TEST(VersionTest, TheTextHasWhatTheFieldsHave) {
  const BuildInfo& info = GetBuildInfo();
  EXPECT_EQ(info.version, Version());
  for (const std::string_view field : {info.version, info.commit, info.build_type, info.compiler}) {
    EXPECT_FALSE(field.empty());
    EXPECT_THAT(VersionText("tandem"), ::testing::HasSubstr(std::string(field)));
  }
}

}  // namespace
}  // namespace tandem

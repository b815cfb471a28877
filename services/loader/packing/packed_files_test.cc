#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "services/common/testing/paths.h"
#include "services/loader/formats/open_model.h"
#include "services/loader/packing/packing_check.h"

namespace tandem::loader {
namespace {

// Every file of the test data, packed into one region and into many.
class PackedFilesTest : public testing::TestWithParam<std::string> {};

TEST_P(PackedFilesTest, EveryNumberOfTheFileIsInItsPlace) {
  const auto source = OpenModelSource(GetParam());
  ASSERT_TRUE(source.ok()) << source.status();
  ExpectPacksExactly(**source, {});
  ExpectPacksExactly(**source, {.max_region_bytes = 200'000});
}

INSTANTIATE_TEST_SUITE_P(TestData, PackedFilesTest,
                         testing::Values(SourcePath("models/demo/demo.Q8_0.gguf"),
                                         TestDataPath("demo.Q4_0.gguf"), TestDataPath("demo"),
                                         TestDataPath("random-1b-shape"),
                                         TestDataPath("random-27b-shape")),
                         [](const auto& test) {
                           std::string name = std::filesystem::path(test.param).filename();
                           for (char& c : name) c = std::isalnum(c) ? c : '_';
                           return name;
                         });

}  // namespace
}  // namespace tandem::loader

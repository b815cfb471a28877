#include "services/npu_worker/emulator/axlf_builder.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "services/common/testing/status_matchers.h"

namespace tandem::npu::emulator {
namespace {

AxlfOptions Options() {
  AxlfOptions options;
  options.uuid[0] = 1;
  return options;
}

template <typename T>
T At(const std::vector<uint8_t>& bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

TEST(AxlfBuilderTest, EverySectionLiesInsideTheFileApartFromTheOthers) {
  ASSERT_OK_AND_ASSIGN(const auto bytes, BuildAxlf(Options()));
  EXPECT_EQ(std::memcmp(bytes.data(), "xclbin2", 8), 0);
  EXPECT_EQ(At<uint64_t>(bytes, 304), bytes.size());
  const auto num_sections = At<uint32_t>(bytes, 304 + 144);
  ASSERT_EQ(num_sections, 7u);
  std::set<uint32_t> kinds;
  uint64_t end = 456 + 40 * num_sections;
  for (uint32_t i = 0; i < num_sections; ++i) {
    const size_t at = 456 + 40 * i;
    kinds.insert(At<uint32_t>(bytes, at));
    EXPECT_GE(At<uint64_t>(bytes, at + 24), end);
    EXPECT_EQ(At<uint64_t>(bytes, at + 24) % 8, 0u);
    end = At<uint64_t>(bytes, at + 24) + At<uint64_t>(bytes, at + 32);
  }
  EXPECT_LE(end, bytes.size());
  EXPECT_EQ(kinds.size(), 7u);
}

TEST(AxlfBuilderTest, NamesEveryArgumentInItsMetadata) {
  AxlfOptions options = Options();
  options.num_data_buffers = 3;
  ASSERT_OK_AND_ASSIGN(const auto bytes, BuildAxlf(options));
  const std::string text(bytes.begin(), bytes.end());
  EXPECT_NE(text.find("name=\"bo2\" addressQualifier=\"1\" id=\"5\""), std::string::npos);
  EXPECT_EQ(text.find("name=\"bo3\""), std::string::npos);
}

TEST(AxlfBuilderTest, RefusesNamesThatDoNotFitAndAZeroUuid) {
  AxlfOptions options = Options();
  options.kernel_name = std::string(60, 'k');
  EXPECT_FALSE(BuildAxlf(options).ok());
  options = Options();
  options.uuid = {};
  EXPECT_FALSE(BuildAxlf(options).ok());
}

}  // namespace
}  // namespace tandem::npu::emulator

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
  options.kernels[0].num_data_buffers = 3;
  ASSERT_OK_AND_ASSIGN(const auto bytes, BuildAxlf(options));
  const std::string text(bytes.begin(), bytes.end());
  EXPECT_NE(text.find("name=\"bo2\" addressQualifier=\"1\" id=\"5\""), std::string::npos);
  EXPECT_EQ(text.find("name=\"bo3\""), std::string::npos);
}

// Offsets of struct aie_partition and of struct aie_pdi, 96 bytes: xrt/detail/xclbin.h.
TEST(AxlfBuilderTest, EachKernelHasAConfigurationThatNamesItsId) {
  AxlfOptions options = Options();
  options.kernels = {{.name = "a", .pdi = std::vector<uint8_t>(5000, 7)},
                     {.name = "b", .pdi = std::vector<uint8_t>(4096, 9)}};
  ASSERT_OK_AND_ASSIGN(const auto bytes, BuildAxlf(options));
  size_t partition = 0, layout = 0;
  for (uint32_t i = 0; i < 7; ++i) {
    const size_t at = 456 + 40 * i;
    if (At<uint32_t>(bytes, at) == 32) partition = At<uint64_t>(bytes, at + 24);
    if (At<uint32_t>(bytes, at) == 8) layout = At<uint64_t>(bytes, at + 24);
  }
  ASSERT_EQ(At<uint32_t>(bytes, partition + 120), 2u);
  ASSERT_EQ(At<uint32_t>(bytes, layout), 2u);
  for (uint32_t i = 0; i < 2; ++i) {
    const size_t pdi = partition + At<uint32_t>(bytes, partition + 124) + 96 * i;
    const std::vector<uint8_t>& expected = options.kernels[i].pdi;
    ASSERT_EQ(At<uint32_t>(bytes, pdi + 16), expected.size());
    EXPECT_EQ(std::memcmp(bytes.data() + partition + At<uint32_t>(bytes, pdi + 20), expected.data(),
                          expected.size()),
              0);
    const size_t group = partition + At<uint32_t>(bytes, pdi + 28);
    const auto id = At<uint64_t>(bytes, partition + At<uint32_t>(bytes, group + 20));
    EXPECT_EQ(id, At<uint32_t>(bytes, layout + 8 + 80 * i + 4) >> 16) << i;
  }
}

TEST(AxlfBuilderTest, RefusesNamesThatDoNotFitAndAZeroUuid) {
  AxlfOptions options = Options();
  options.kernels[0].name = std::string(60, 'k');
  EXPECT_FALSE(BuildAxlf(options).ok());
  options.kernels.clear();
  EXPECT_FALSE(BuildAxlf(options).ok());
  options.kernels = {{}, {}};
  EXPECT_FALSE(BuildAxlf(options).ok()) << "both of one name";
  options = Options();
  options.uuid = {};
  EXPECT_FALSE(BuildAxlf(options).ok());
}

}  // namespace
}  // namespace tandem::npu::emulator

#include "services/npu_worker/attention/kernel_package.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "services/common/testing/status_matchers.h"

namespace tandem::npu {
namespace {

using tandem::testing::HasCode;
using tandem::testing::StatusIs;
using ::testing::HasSubstr;

constexpr char kManifest[] = R"({
  "format": "tandem-npu-kernels", "abi_version": 3, "device": "test", "emulated": true,
  "xclbin": "a.xclbin", "kernel": "MLIR_AIE",
  "attend": [
    {"head_dim": 128, "kv_format": "f16", "max_positions": 512, "instructions": "a.bin"},
    {"head_dim": 64, "kv_format": "f16", "max_positions": 4096, "instructions": "a.bin"},
    {"head_dim": 64, "kv_format": "f16", "max_positions": 512, "instructions": "a.bin"}],
  "out": [{"weight_format": "q8_0", "instructions": "a.bin"}]})";

class KernelPackageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "/kernels." + std::to_string(::getpid());
    std::filesystem::create_directories(folder_);
    std::string xclbin(320, '\0');
    std::memcpy(xclbin.data(), "xclbin2", 8);
    const uint64_t length = xclbin.size();
    std::memcpy(xclbin.data() + 304, &length, sizeof(length));
    Write("a.xclbin", xclbin);
    Write("a.bin", std::string("\1\0\0\0\2\0\0\0", 8));
    Write("manifest.json", kManifest);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void Write(const std::string& name, const std::string& content) {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << content;
  }
  // The manifest with one text replaced by another.
  absl::Status ReadWith(const std::string& from, const std::string& to) {
    std::string manifest = kManifest;
    const size_t at = manifest.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    Write("manifest.json", manifest.replace(at, from.size(), to));
    return KernelPackage::Read(folder_).status();
  }
  std::string folder_;
};

TEST_F(KernelPackageTest, ReadsKernelsByHeadSizeAndLength) {
  ASSERT_OK_AND_ASSIGN(const KernelPackage package, KernelPackage::Read(folder_));
  EXPECT_TRUE(package.emulated);
  EXPECT_EQ(package.HeadDims(), (std::vector<uint32_t>{64, 128}));
  EXPECT_EQ(package.WeightDtypes(), std::vector<DType>{DType::kQ8_0});
  EXPECT_EQ(package.attend[0].instructions, (std::vector<uint32_t>{1, 2}));
  ASSERT_OK_AND_ASSIGN(const auto one, package.AttendBuckets(64, 512));
  ASSERT_EQ(one.size(), 1u);
  ASSERT_OK_AND_ASSIGN(const auto two, package.AttendBuckets(64, 513));
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[0]->max_positions, 512u);
  EXPECT_THAT(package.AttendBuckets(64, 4097), HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(package.AttendBuckets(256, 1), HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_TRUE(package.FindOut(DType::kQ8_0).ok());
  EXPECT_THAT(package.FindOut(DType::kF32), HasCode(absl::StatusCode::kFailedPrecondition));
}

TEST_F(KernelPackageTest, RefusesWhatIsWrongAndNamesIt) {
  const std::vector<std::pair<std::string, std::string>> faults = {
      {"tandem-npu-kernels", "other"},
      {"\"abi_version\": 3", "\"abi_version\": 1"},
      {"\"abi_version\": 3", "\"abi_version\": -1"},
      {"\"device\": \"test\"", "\"device\": 5"},
      {"\"a.xclbin\"", "\"../a.xclbin\""},
      {"\"a.xclbin\"", "\"/etc/passwd\""},
      {"\"a.xclbin\"", "\"..\""},
      {"\"head_dim\": 128", "\"head_dim\": 4294967296"},
      {"\"head_dim\": 128", "\"head_dim\": \"128\""},
      {"\"f16\"", "\"f8\""},
      {"\"q8_0\"", "\"q9_9\""},
      {"\"attend\": [", "\"attends\": ["},
      {"{\"weight_format\": \"q8_0\", \"instructions\": \"a.bin\"}", "7"},
  };
  for (const auto& [from, to] : faults) {
    EXPECT_THAT(ReadWith(from, to),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("manifest.json")))
        << from << " -> " << to;
  }
  Write("manifest.json", "{\"format\": ");
  EXPECT_THAT(KernelPackage::Read(folder_), HasCode(absl::StatusCode::kInvalidArgument));
  Write("manifest.json", std::string(100000, '['));
  EXPECT_THAT(KernelPackage::Read(folder_), HasCode(absl::StatusCode::kInvalidArgument));
}

TEST_F(KernelPackageTest, RefusesFilesThatAreMissingOrCutShort) {
  Write("a.bin", "123");
  EXPECT_THAT(KernelPackage::Read(folder_),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a.bin")));
  std::filesystem::remove(folder_ + "/a.bin");
  EXPECT_THAT(KernelPackage::Read(folder_),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("a.bin")));
  Write("a.xclbin", "xclbin2");
  EXPECT_THAT(KernelPackage::Read(folder_),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("cut short")));
  EXPECT_THAT(KernelPackage::Read(folder_ + "/none"), HasCode(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace tandem::npu

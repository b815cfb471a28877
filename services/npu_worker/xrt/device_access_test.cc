#include "services/npu_worker/xrt/device_access.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "services/common/testing/status_matchers.h"

namespace tandem::npu {
namespace {

using tandem::testing::StatusIs;
using ::testing::HasSubstr;

class DeviceNodeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "/accel." + std::to_string(::getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
};

TEST_F(DeviceNodeTest, NamesTheDriverWhenThereIsNoNode) {
  for (const std::string& folder : {folder_, folder_ + "/missing"}) {
    EXPECT_THAT(CheckDeviceNode(folder),
                StatusIs(absl::StatusCode::kNotFound, HasSubstr("modprobe amdxdna")));
  }
}

TEST_F(DeviceNodeTest, NamesTheGroupWhenANodeMayNotBeOpened) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may open everything";
  std::ofstream(folder_ + "/accel0") << "x";
  ASSERT_EQ(::chmod((folder_ + "/accel0").c_str(), 0), 0);
  EXPECT_THAT(CheckDeviceNode(folder_),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("render")));
}

TEST_F(DeviceNodeTest, TakesANodeThatOpens) {
  std::ofstream(folder_ + "/accel0") << "x";
  EXPECT_OK(CheckDeviceNode(folder_));
}

TEST(LockedMemoryTest, NamesBothAmountsAndTheFix) {
  EXPECT_OK(CheckLockedMemory(kMinLockedBytes, kMinLockedBytes));
  EXPECT_OK(CheckLockedMemory(~uint64_t{0}, uint64_t{1} << 60));
  EXPECT_THAT(CheckLockedMemory(uint64_t{8} << 20, kMinLockedBytes),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       ::testing::AllOf(HasSubstr("8192 KiB"), HasSubstr("65536 KiB"),
                                        HasSubstr("LimitMEMLOCK"))));
}

TEST(LockedMemoryTest, GrowsWithWhatIsLocked) {
  constexpr size_t kBytes = 32 << 10;  // below any system's limit
  void* const pages =
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  const uint64_t before = LockedMemory();
  // Not mlock: sanitizers make it do nothing.
  if (::syscall(SYS_mlock, pages, kBytes) != 0) GTEST_SKIP() << "this system locks no memory";
  EXPECT_EQ(LockedMemory(), before + kBytes);
  ::munmap(pages, kBytes);
  EXPECT_EQ(LockedMemory(), before);
}

TEST(HostMemoryTest, AvailableIsPartOfTheTotal) {
  const HostMemory memory = ReadHostMemory();
  EXPECT_GT(memory.available_bytes, 0u);
  EXPECT_LE(memory.available_bytes, memory.total_bytes);
}

}  // namespace
}  // namespace tandem::npu

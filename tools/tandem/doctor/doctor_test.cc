#include "tools/tandem/doctor/doctor.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "absl/strings/str_format.h"

namespace tandem {
namespace {

class DoctorTest : public testing::Test {
 protected:
  DoctorTest() {
    system_.root = std::filesystem::temp_directory_path() / absl::StrFormat("doctor.%d", getpid());
    system_.bin_dir = system_.root + "/bin";
    std::filesystem::create_directories(system_.bin_dir);
  }
  ~DoctorTest() override { std::filesystem::remove_all(system_.root); }

  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(system_.root + path).parent_path());
    std::ofstream(system_.root + path) << text;
  }

  SystemView system_;
};

TEST_F(DoctorTest, NodesAreFoundMissingOrForbidden) {
  EXPECT_EQ(CheckRenderNode(system_).verdict, Verdict::kNote);
  Write("/dev/dri/renderD128", "");
  EXPECT_EQ(CheckRenderNode(system_).verdict, Verdict::kGood);
  if (geteuid() == 0) GTEST_SKIP() << "root may open everything";
  chmod((system_.root + "/dev/dri/renderD128").c_str(), 0);
  EXPECT_EQ(CheckRenderNode(system_).verdict, Verdict::kBad);
  EXPECT_NE(CheckRenderNode(system_).remedy.find("usermod -aG"), std::string::npos);
}

TEST_F(DoctorTest, MemlockBelowUnlimitedIsNoted) {
  system_.memlock_bytes = 8 << 20;
  EXPECT_EQ(CheckMemlock(system_).verdict, Verdict::kNote);
  system_.memlock_bytes = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(CheckMemlock(system_).verdict, Verdict::kGood);
}

TEST_F(DoctorTest, HugepageModeIsTheBracketedWord) {
  const std::string path = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
  Write(path, "always within_size advise [never] deny force\n");
  EXPECT_EQ(CheckHugepages(system_).verdict, Verdict::kNote);
  Write(path, "always [within_size] advise never deny force\n");
  EXPECT_EQ(CheckHugepages(system_).verdict, Verdict::kGood);
}

TEST_F(DoctorTest, MemoryComesFromMeminfo) {
  EXPECT_EQ(CheckMemory(system_).verdict, Verdict::kBad);
  Write("/proc/meminfo",
        "MemTotal:       2097152 kB\nMemFree:  1 kB\nMemAvailable:   1048576 kB\n");
  EXPECT_EQ(CheckMemory(system_).detail, "1.0 GiB free of 2.0 GiB");
}

TEST_F(DoctorTest, AWorkersProbeDecidesByItsExitCodeAndSaysItsLastLine) {
  const auto probe = [this] {
    return CheckWorker(system_, "vulkan", {"worker", "--probe"}, Verdict::kBad, "install one");
  };
  EXPECT_EQ(probe().verdict, Verdict::kBad);
  Write("/bin/worker",
        "#!/bin/sh\necho first\necho \"device $1\"\necho 'it is not there' >&2\n"
        "echo '[XRT] ERROR: No devices found' >&2\n"
        "echo '2026-11-23T06:14:04.772 level=error service=npu event=\"x\"' >&2\n"
        "exit $(cat ${0%/*}/code)\n");
  Write("/bin/code", "0");
  chmod((system_.bin_dir + "/worker").c_str(), 0755);
  EXPECT_EQ(probe().verdict, Verdict::kGood);
  EXPECT_EQ(probe().detail, "device --probe");
  Write("/bin/code", "1");
  EXPECT_EQ(probe().verdict, Verdict::kBad);
  EXPECT_EQ(probe().detail, "it is not there") << "and no line of a log";
  EXPECT_EQ(probe().remedy, "install one");
}

}  // namespace
}  // namespace tandem

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

TEST_F(DoctorTest, DmabufsMustBeAllowedToBeAsLargeAsARegion) {
  EXPECT_EQ(CheckUdmabuf(system_).verdict, Verdict::kNote) << "no node";
  Write("/dev/udmabuf", "");
  EXPECT_EQ(CheckUdmabuf(system_).verdict, Verdict::kGood) << "a limit that cannot be read";
  const auto with_limit = [this](const std::string& mib) {
    Write("/sys/module/udmabuf/parameters/size_limit_mb", mib + "\n");
    return CheckUdmabuf(system_);
  };
  const Finding by_default = with_limit("64");
  EXPECT_EQ(by_default.verdict, Verdict::kNote);
  EXPECT_NE(by_default.detail.find("64 MiB"), std::string::npos);
  EXPECT_NE(by_default.detail.find("twice the memory"), std::string::npos);
  EXPECT_NE(by_default.remedy.find("size_limit_mb - - - - 2047"), std::string::npos);
  EXPECT_EQ(with_limit("1023").verdict, Verdict::kNote);
  for (const char* enough : {"1024", "2047", "2048", "5120"}) {
    EXPECT_EQ(with_limit(enough).verdict, Verdict::kGood) << enough;
  }
  for (const char* overflows : {"4096", "4160", "32768"}) {
    const Finding finding = with_limit(overflows);
    EXPECT_EQ(finding.verdict, Verdict::kNote) << overflows;
    EXPECT_NE(finding.detail.find("overflows"), std::string::npos);
  }
  if (geteuid() == 0) GTEST_SKIP() << "root may open everything";
  chmod((system_.root + "/dev/udmabuf").c_str(), 0);
  EXPECT_NE(CheckUdmabuf(system_).remedy.find("usermod -aG"), std::string::npos);
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
  Write("/bin/code", "5");
  const auto wrong = CheckWorker(system_, "XRT", {"worker", "--probe"}, Verdict::kNote, "x", "y");
  EXPECT_EQ(wrong.verdict, Verdict::kBad) << "wrong answers are a fault, whatever the policy";
  EXPECT_EQ(wrong.detail, "it is not there");
  EXPECT_EQ(wrong.remedy, "y");
  const auto optional =
      CheckWorker(system_, "emulation", {"worker", "--probe"}, Verdict::kNote, "x");
  EXPECT_EQ(optional.verdict, Verdict::kNote);
}

TEST_F(DoctorTest, TheDriverOfTheGpuIsJudgedByItsNameAndVersion) {
  const auto probe = [](const std::string& driver) {
    return "AMD Radeon 780M (integrated), " + driver + ", Vulkan 1.3.0\n  heap 0: 1 GiB\nAMD\n";
  };
  EXPECT_EQ(JudgeGpuDriver(probe("radv Mesa 25.0.7-2")).verdict, Verdict::kGood);
  EXPECT_EQ(JudgeGpuDriver(probe("radv Mesa 26.1.0")).verdict, Verdict::kGood);
  const Finding old = JudgeGpuDriver(probe("radv Mesa 24.3.4"));
  EXPECT_EQ(old.verdict, Verdict::kNote);
  EXPECT_NE(old.detail.find("24.3.4"), std::string::npos);
  EXPECT_NE(old.detail.find("cooperative matrices"), std::string::npos);
  const Finding amdvlk = JudgeGpuDriver(probe("AMD open-source driver 2025.Q1.3 (LLPC)"));
  EXPECT_EQ(amdvlk.verdict, Verdict::kNote);
  EXPECT_NE(amdvlk.detail.find("AMDVLK"), std::string::npos);
  EXPECT_NE(amdvlk.remedy.find("AMD_VULKAN_ICD=RADV"), std::string::npos);
  EXPECT_EQ(JudgeGpuDriver("Card (discrete), NVIDIA 580.159, Vulkan 1.4.0\n").verdict,
            Verdict::kGood);
  const Finding software =
      JudgeGpuDriver("llvmpipe (cpu), llvmpipe Mesa 22.3.6 (LLVM 15.0.6), Vulkan 1.3.230\n");
  EXPECT_EQ(software.verdict, Verdict::kNote);
  EXPECT_NE(software.detail.find("software"), std::string::npos);
  EXPECT_EQ(JudgeGpuDriver("").verdict, Verdict::kNote);
}

TEST_F(DoctorTest, GroupsOfTheGpuAreNamedWhereTheUserLacksThem) {
  EXPECT_EQ(CheckGpuGroups(system_).verdict, Verdict::kGood) << "no amdgpu";
  Write("/sys/module/amdgpu/version", "");
  Write("/etc/group", "root:x:0:\nvideo:x:44:\nrender:x:105:somebody\n");
  system_.groups = {"users", "video"};
  const Finding finding = CheckGpuGroups(system_);
  EXPECT_EQ(finding.verdict, Verdict::kNote);
  EXPECT_EQ(finding.remedy, "sudo usermod -aG render $USER, then log in again");
  system_.groups.emplace_back("render");
  EXPECT_EQ(CheckGpuGroups(system_).verdict, Verdict::kGood);
  system_.groups.clear();
  EXPECT_NE(CheckGpuGroups(system_).remedy.find("render,video"), std::string::npos);
  system_.is_root = true;
  EXPECT_EQ(CheckGpuGroups(system_).verdict, Verdict::kGood);
}

TEST_F(DoctorTest, APowerProfileThatHoldsClocksDownIsNoted) {
  EXPECT_EQ(CheckPowerProfile(system_).verdict, Verdict::kGood) << "none";
  Write("/sys/firmware/acpi/platform_profile", "low-power\n");
  EXPECT_EQ(CheckPowerProfile(system_).verdict, Verdict::kNote);
  EXPECT_NE(CheckPowerProfile(system_).detail.find("low-power"), std::string::npos);
  Write("/sys/firmware/acpi/platform_profile", "performance\n");
  EXPECT_EQ(CheckPowerProfile(system_).verdict, Verdict::kGood);
  const std::string level = "/sys/class/drm/card0/device/power_dpm_force_performance_level";
  Write(level, "low\n");
  EXPECT_EQ(CheckPowerProfile(system_).verdict, Verdict::kNote);
  EXPECT_NE(CheckPowerProfile(system_).remedy.find(level), std::string::npos);
  Write(level, "auto\n");
  EXPECT_EQ(CheckPowerProfile(system_).verdict, Verdict::kGood);
}

}  // namespace
}  // namespace tandem

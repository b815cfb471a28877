#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/str_format.h"
#include "tools/tandem/doctor/doctor.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class NpuChecksTest : public testing::Test {
 protected:
  NpuChecksTest() {
    system_.root = std::filesystem::temp_directory_path() / absl::StrFormat("npu.%d", getpid());
    system_.bin_dir = system_.root + "/usr/bin";
    std::filesystem::create_directories(system_.bin_dir);
  }
  ~NpuChecksTest() override { std::filesystem::remove_all(system_.root); }

  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(system_.root + path).parent_path());
    std::ofstream(system_.root + path) << text;
  }
  // A machine with a Ryzen AI 300 on which everything is in place.
  void MakeGoodMachine() {
    Write("/etc/os-release", "NAME=\"Debian GNU/Linux\"\nID=debian\nVERSION_ID=\"13\"\n");
    Write("/etc/apt/sources.list.d/debian.sources",
          "Types: deb\nURIs: http://mirror.example/debian\nSuites: trixie trixie-backports\n");
    Write("/proc/sys/kernel/osrelease", "7.3.4+deb13-amd64\n");
    Write(kDevice + "/vendor", "0x1022\n");
    Write(kDevice + "/device", "0x17f0\n");
    Write(kDevice + "/revision", "0x10\n");
    std::filesystem::create_symlink("../../../bus/pci/drivers/amdxdna",
                                    system_.root + kDevice + "/driver");
    Write("/sys/module/amdxdna/version", "");
    Write(kDevice + "/accel/accel0/dev", "261:0\n");
    Write("/dev/accel/accel0", "");
    system_.ioctl = [this](int, unsigned long request, void* argument) {
      return Answer(request, argument);
    };
    Write("/lib/firmware/amdnpu/17f0_10/npu.sbin.zst", "");
    Write("/usr/lib/x86_64-linux-gnu/libxrt_coreutil.so.2", "");
    Write("/usr/lib/x86_64-linux-gnu/libxrt_coreutil.so.2.25.00", "");
    Write("/usr/lib/x86_64-linux-gnu/libxrt_driver_xdna.so.2.25.00", "");
    Write(
        kPackage,
        R"({"version": 3, "operators": [{"device": "npu4", "columns": 8}, {"device": "npu4", "columns": 8}]})");
  }
  // As the kernel's header has it: amdxdna_drm_get_info and amdxdna_drm_get_array.
  int Answer(unsigned long request, void* argument) {
    errno = EOPNOTSUPP;
    uint32_t head[4];
    std::memcpy(head, argument, sizeof(head));
    uint64_t address = 0;
    if (request == 0xC018644Au && has_arrays_) {
      EXPECT_EQ(head[0], 0u);
      EXPECT_EQ(head[1], 64u);
      EXPECT_GE(head[2], contexts_.size());
      std::memcpy(&address, static_cast<std::byte*>(argument) + 16, sizeof(address));
      FillContexts(address);
      return 0;
    }
    if (request != 0xC0106447u) return -1;
    std::memcpy(&address, static_cast<std::byte*>(argument) + 8, sizeof(address));
    auto* const words = reinterpret_cast<uint32_t*>(address);
    if (head[0] == 5) {
      FillContexts(address);
    } else if (head[0] == 8) {
      constexpr uint32_t kVersion[] = {1, 1, 2, 64};
      std::ranges::copy(kVersion, words);
    } else if (head[0] == 9 && power_mode_ >= 0) {
      *reinterpret_cast<uint8_t*>(address) = static_cast<uint8_t>(power_mode_);
    } else {
      return -1;
    }
    return 0;
  }
  void FillContexts(uint64_t address) const {
    for (size_t i = 0; i < contexts_.size(); ++i) {
      auto* const record = reinterpret_cast<std::byte*>(address + i * 64);
      const uint32_t columns = 4;
      std::memcpy(record + 8, &columns, sizeof(columns));
      std::memcpy(record + 16, &contexts_[i], sizeof(contexts_[i]));
    }
  }
  void Remove(const std::string& path) { std::filesystem::remove_all(system_.root + path); }
  Finding Find(const std::string& subject) {
    for (const Finding& finding : CheckNpu(system_)) {
      if (finding.subject == subject) return finding;
    }
    ADD_FAILURE() << "no finding about " << subject;
    return {};
  }
  void ExpectNote(const std::string& subject, const char* detail, const char* remedy) {
    const Finding finding = Find(subject);
    EXPECT_EQ(finding.verdict, Verdict::kNote) << subject;
    EXPECT_THAT(finding.detail, HasSubstr(detail));
    EXPECT_THAT(finding.remedy, HasSubstr(remedy));
  }

  const std::string kPackage = "/usr/lib/tandem/npu/hardware/package.json";
  const std::string kDevice = "/sys/bus/pci/devices/0000:c5:00.1";
  std::vector<int64_t> contexts_ = {4711, 4711, 815};  // the processes that have them
  bool has_arrays_ = true;
  int power_mode_ = 0;  // -1: the driver does not know the question
  SystemView system_;
};

TEST_F(NpuChecksTest, AMachineWithoutAnNpuIsNotAsked) {
  EXPECT_TRUE(CheckNpu(system_).empty());
  Write(kDevice + "/vendor", "0x1022\n");
  Write(kDevice + "/device", "0x15bf\n");
  EXPECT_TRUE(CheckNpu(system_).empty()) << "a GPU";
}

TEST_F(NpuChecksTest, AMachineThatIsSetUpIsGood) {
  MakeGoodMachine();
  const std::vector<Finding> findings = CheckNpu(system_);
  EXPECT_EQ(findings.size(), 8u);
  for (const Finding& finding : findings) {
    EXPECT_EQ(finding.verdict, Verdict::kGood) << finding.subject << ": " << finding.detail;
    EXPECT_EQ(finding.remedy, "") << finding.subject;
  }
  EXPECT_THAT(Find("NPU driver").detail,
              HasSubstr("Ryzen AI 300 or Max (npu4's kind) at 0000:c5:00.1"));
  Write(kDevice + "/fw_version", "1.1.2.64\n");
  EXPECT_EQ(Find("NPU firmware").detail, "1.1.2.64, loaded");
  Write(kDevice + "/device", "0x1502\n");
  EXPECT_THAT(Find("NPU driver").detail, HasSubstr("7040 or 8040 (npu1)"));
}

TEST_F(NpuChecksTest, EachMissingPartNamesItsCommand) {
  MakeGoodMachine();
  Write("/proc/sys/kernel/osrelease", "6.12.48+deb13-amd64\n");
  ExpectNote("NPU kernel", "6.12.48", "-t trixie-backports linux-image-amd64");
  Write("/proc/sys/kernel/osrelease", "6.14.0\n");
  EXPECT_EQ(Find("NPU kernel").verdict, Verdict::kGood);

  Remove(kDevice + "/driver");
  ExpectNote("NPU driver", "has no driver", "journalctl -k -g amdxdna");
  Remove("/sys/module/amdxdna");
  ExpectNote("NPU driver", "has no driver", "sudo modprobe amdxdna");
  std::filesystem::create_symlink("../vfio-pci", system_.root + kDevice + "/driver");
  ExpectNote("NPU driver", "held by the driver vfio-pci", "unbind");

  Remove("/lib/firmware/amdnpu/17f0_10/npu.sbin.zst");
  Write("/lib/firmware/amdnpu/1502_00/npu.sbin", "of another NPU");
  ExpectNote("NPU firmware", "amdnpu/17f0_10", "firmware-amd-graphics");

  Remove("/usr/lib/tandem");
  ExpectNote("NPU kernels", "/usr/lib/tandem/npu/hardware", "docs/npu.md");
}

TEST_F(NpuChecksTest, ContextsInUseAreCountedAndTheirProcessesNamed) {
  MakeGoodMachine();
  EXPECT_EQ(Find("NPU contexts").detail, "3 of 16 in use, by processes 815, 4711");
  has_arrays_ = false;
  EXPECT_EQ(Find("NPU contexts").detail, "3 of 16 in use, by processes 815, 4711")
      << "from the query of older drivers";
  contexts_.clear();
  EXPECT_EQ(Find("NPU contexts").detail, "0 of 16 in use");
  contexts_.assign(16, 99);
  ExpectNote("NPU contexts", "16 of 16 in use, by processes 99", "end programs");
  Write(kDevice + "/device", "0x1502\n");
  contexts_.assign(6, 99);
  ExpectNote("NPU contexts", "6 of 6 in use", "end programs");
}

TEST_F(NpuChecksTest, APackageWithMoreXclbinsThanTheNpuHasContextsIsNoted) {
  MakeGoodMachine();
  const auto write = [this](int num_operators, int num_xclbins) {
    std::string operators;
    for (int i = 0; i < num_operators; ++i) {
      operators += absl::StrFormat(R"(%s{"device": "npu4", "columns": 8, "xclbin": "%d.xclbin"})",
                                   i == 0 ? "" : ", ", i % num_xclbins);
    }
    Write(kPackage, R"({"version": 3, "operators": [)" + operators + "]}");
  };
  write(17, 1);
  EXPECT_EQ(Find("NPU contexts").detail, "3 of 16 in use, by processes 815, 4711")
      << "operators of one xclbin share a context";
  write(17, 16);
  EXPECT_EQ(Find("NPU contexts").verdict, Verdict::kGood);
  EXPECT_THAT(Find("NPU contexts").detail, HasSubstr("operators take up to 16"));
  write(17, 17);
  ExpectNote("NPU contexts", "take up to 17, one for each xclbin", "share an xclbin");
}

TEST_F(NpuChecksTest, APowerModeThatHoldsClocksDownIsNoted) {
  MakeGoodMachine();
  EXPECT_EQ(Find("NPU power mode").detail, "default");
  power_mode_ = 1;
  ExpectNote("NPU power mode", "low", "xrt-smi configure --pmode default");
  power_mode_ = 2;
  ExpectNote("NPU power mode", "medium", "xrt-smi configure --pmode default");
  power_mode_ = 4;
  EXPECT_EQ(Find("NPU power mode").detail, "turbo");
  power_mode_ = 77;
  EXPECT_EQ(Find("NPU power mode").verdict, Verdict::kGood);
  power_mode_ = -1;
  EXPECT_EQ(Find("NPU power mode").detail, "this driver does not tell");
}

TEST_F(NpuChecksTest, TheProtocolIsKnownByWhetherTheDriverHasMadeANode) {
  MakeGoodMachine();
  EXPECT_EQ(Find("NPU firmware protocol").detail, "the driver takes that of firmware 1.1.2.64");
  Remove("/dev/accel/accel0");  // or this user may not open it
  EXPECT_EQ(Find("NPU firmware protocol").detail, "the driver takes the firmware's");
  for (const Finding& finding : CheckNpu(system_)) EXPECT_NE(finding.subject, "NPU contexts");
  Remove(kDevice + "/accel");
  ExpectNote("NPU firmware protocol", "has not started the NPU", "'firmware protocol'");
  Remove("/sys/module/amdxdna");
  Remove(kDevice + "/driver");
  ExpectNote("NPU firmware protocol", "not known", "modprobe amdxdna");
}

TEST_F(NpuChecksTest, ThePackageMustBeForThisNpu) {
  MakeGoodMachine();
  EXPECT_THAT(Find("NPU kernels").detail, HasSubstr("hardware, for npu4, 8 columns"));
  Write(kPackage, R"({"version": 3, "operators": [{"device": "npu1", "columns": 4}]})");
  ExpectNote("NPU kernels", "is for npu1, 4 columns, this NPU is of npu4's kind", "docs/npu.md");
  for (const char* damaged :
       {"{", "[]", "{\"version\": 2}", "{\"version\": \"3\"}",
        R"({"version": 3, "operators": [7]})",
        R"({"version": 3, "operators": [{"device": "npu4", "columns": -1}]})"}) {
    Write(kPackage, damaged);
    ExpectNote("NPU kernels", "is no package of version 3", "docs/npu.md");
  }
  Remove(kPackage);
  Write("/usr/lib/tandem/npu/hardware/manifest.json", "{}");
  ExpectNote("NPU kernels", "before version 3", "docs/npu.md");
}

TEST_F(NpuChecksTest, XrtAndItsPluginMustBeOfOneVersion) {
  MakeGoodMachine();
  const std::string plugin = "/usr/lib/x86_64-linux-gnu/libxrt_driver_xdna.so.2.25.00";
  Remove(plugin);
  ExpectNote("NPU libraries", "XRT 2.25 without",
             "trixie-backports libxrt2 libxrt-npu2 libxrt-dev");
  Write("/opt/xilinx/xrt/lib/libxrt_driver_xdna.so.2.21.75", "");
  ExpectNote("NPU libraries", "XRT 2.25 and the NPU's plugin 2.21", "libxrt-npu2");
  Remove("/usr/lib/x86_64-linux-gnu");
  ExpectNote("NPU libraries", "not installed", "libxrt-npu2");
}

TEST_F(NpuChecksTest, BackportsAreAddedWhereAptDoesNotKnowThem) {
  MakeGoodMachine();
  Remove("/usr/lib/x86_64-linux-gnu");
  const auto remedy = [this] { return Find("NPU libraries").remedy; };
  EXPECT_THAT(remedy(), StartsWith("sudo apt-get install -t trixie-backports"));
  Remove("/etc/apt");
  EXPECT_THAT(remedy(), AllOf(HasSubstr("trixie-backports main non-free-firmware"),
                              HasSubstr("apt-get update && sudo apt-get install -t trixie")));
  Write("/etc/apt/sources.list",
        "deb http://mirror.example/debian-security trixie-security main\n"
        "deb http://mirror.example/debian/ trixie main\n"
        "# deb http://mirror.example/debian trixie-backports main\n");
  EXPECT_THAT(remedy(), StartsWith("echo 'deb http://mirror.example/debian trixie-backports main"));
  Write("/etc/apt/sources.list.d/more.list",
        "deb http://mirror.example/debian trixie-backports main\n");
  EXPECT_THAT(remedy(), StartsWith("sudo apt-get install"));
}

TEST_F(NpuChecksTest, CommandsAreThoseOfTheDistribution) {
  MakeGoodMachine();
  Write("/proc/sys/kernel/osrelease", "6.8.0-60-generic\n");
  Remove("/usr/lib/x86_64-linux-gnu");
  Remove("/lib/firmware");
  Write("/etc/os-release", "ID=ubuntu\nID_LIKE=debian\nVERSION_ID=\"24.04\"\n");
  ExpectNote("NPU kernel", "6.8.0", "linux-generic-hwe-24.04");
  ExpectNote("NPU libraries", "", "ppa:amd-team/xrt");
  ExpectNote("NPU firmware", "", "sudo apt-get install linux-firmware");
  Write("/etc/os-release", "ID=ubuntu\nVERSION_ID=\"25.10\"\n");
  ExpectNote("NPU kernel", "6.8.0", "install linux-generic,");
  Write("/etc/os-release", "ID=fedora\nVERSION_ID=43\n");
  ExpectNote("NPU kernel", "6.8.0", "Linux 6.14 or newer");
}

}  // namespace
}  // namespace tandem

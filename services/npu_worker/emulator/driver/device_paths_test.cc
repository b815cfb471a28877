#include "services/npu_worker/emulator/driver/device_paths.h"

#include <gtest/gtest.h>

namespace tandem::npu::emulator {
namespace {

TEST(DevicePathsTest, TheDeviceAndItsDriverLieInTheTree) {
  for (const std::string path :
       {"/dev/accel", "/dev/accel/accel0", "/sys/bus/pci/drivers/amdxdna",
        "/sys/bus/pci/drivers/amdxdna/0000:c5:00.1", "/sys/bus/pci/devices/0000:c5:00.1/vendor",
        "/sys/devices/pci0000:c0/0000:c5:00.1"}) {
    EXPECT_EQ(RealPath("/tree", path.c_str()), "/tree" + path);
    EXPECT_EQ(ShownPath("/tree", ("/tree" + path).c_str()), path);
  }
}

TEST(DevicePathsTest, OtherPathsAreLeftAlone) {
  for (const std::string path : {"", "/", "/dev", "/dev/accelerator", "/sys/bus/pci/drivers",
                                 "/sys/bus/pci/devices/0000:c5:00.10", "dev/accel", "/dev/null"}) {
    EXPECT_EQ(RealPath("/tree", path.c_str()), path);
    EXPECT_EQ(ShownPath("/tree", path.c_str()), path);
  }
}

}  // namespace
}  // namespace tandem::npu::emulator

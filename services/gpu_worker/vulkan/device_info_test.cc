#include "services/gpu_worker/vulkan/device_info.h"

#include <gtest/gtest.h>

#include <tuple>

namespace tandem::vulkan {
namespace {

DeviceInfo Info(std::string name, VkPhysicalDeviceType type) {
  DeviceInfo info;
  info.name = std::move(name);
  info.type = type;
  return info;
}

std::vector<DeviceInfo> Machine() {
  return {Info("llvmpipe", VK_PHYSICAL_DEVICE_TYPE_CPU),
          Info("AMD Radeon 780M", VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU),
          Info("NVIDIA H200", VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU),
          Info("NVIDIA H200", VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU)};
}

TEST(ChooseDeviceTest, PrefersDiscreteThenIntegratedThenCpu) {
  auto devices = Machine();
  EXPECT_EQ(*ChooseDevice(devices, ""), 2u);
  devices.resize(2);
  EXPECT_EQ(*ChooseDevice(devices, ""), 1u);
  devices.resize(1);
  EXPECT_EQ(*ChooseDevice(devices, ""), 0u);
}

TEST(ChooseDeviceTest, TakesAnIndexOrPartOfAName) {
  EXPECT_EQ(*ChooseDevice(Machine(), "3"), 3u);
  EXPECT_EQ(*ChooseDevice(Machine(), "radeon"), 1u);
  EXPECT_EQ(*ChooseDevice(Machine(), "780"), 1u) << "a number that is no index is a name";
}

TEST(ChooseDeviceTest, SoftwareIsTakenLastNeverOrAlone) {
  auto devices = Machine();
  EXPECT_EQ(*ChooseDevice(devices, "", SoftwareUse::kNever), 2u);
  EXPECT_EQ(*ChooseDevice(devices, "", SoftwareUse::kOnly), 0u);
  // A name does not outweigh the policy.
  for (const auto& [name, use, words] :
       {std::tuple{"llvm", SoftwareUse::kNever, "is software, and --gpu=require wants a GPU"},
        {"780M", SoftwareUse::kOnly, "is a GPU, and --gpu=software wants"}}) {
    const auto choice = ChooseDevice(devices, name, use);
    EXPECT_EQ(choice.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_NE(choice.status().message().find(words), std::string::npos) << choice.status();
  }
  devices.resize(1);
  EXPECT_EQ(*ChooseDevice(devices, "", SoftwareUse::kLast), 0u);
  EXPECT_EQ(ChooseDevice(devices, "", SoftwareUse::kNever).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(ChooseDeviceTest, ListsTheDevicesWhenNoneMatches) {
  const auto choice = ChooseDevice(Machine(), "arc");
  EXPECT_EQ(choice.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(choice.status().message().find("1: AMD Radeon 780M"), std::string::npos);
  EXPECT_EQ(ChooseDevice({}, "").status().code(), absl::StatusCode::kNotFound);
}

TEST(ChooseDeviceTest, PassesOverUnusableDevicesUnlessNamed) {
  auto devices = Machine();
  devices[2].missing = {"bufferDeviceAddress"};
  EXPECT_EQ(*ChooseDevice(devices, ""), 3u);
  const auto named = ChooseDevice(devices, "2");
  EXPECT_EQ(named.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(named.status().message().find("bufferDeviceAddress"), std::string::npos);
}

TEST(DescribeDeviceTest, ListsTheMatrixUnitsShapes) {
  DeviceInfo info = Info("NVIDIA H200", VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU);
  EXPECT_NE(DescribeDevice(info).find("matrix units: none\n"), std::string::npos);
  info.matrix_shapes = {{16, 16, 16},
                        {16, 16, 32, VK_COMPONENT_TYPE_SINT8_KHR, VK_COMPONENT_TYPE_UINT8_KHR,
                         VK_COMPONENT_TYPE_SINT32_KHR, VK_COMPONENT_TYPE_SINT32_KHR, true}};
  EXPECT_NE(DescribeDevice(info).find("matrix units: 16x16x16 f16 f16 f32 f32, "
                                      "16x16x32 s8 u8 s32 s32 saturating\n"),
            std::string::npos);
}

}  // namespace
}  // namespace tandem::vulkan

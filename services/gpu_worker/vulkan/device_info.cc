#include "services/gpu_worker/vulkan/device_info.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace tandem::vulkan {
namespace {

int Rank(VkPhysicalDeviceType type) {
  switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
      return 0;
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU:
      return 1;
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU:
      return 2;
    case VK_PHYSICAL_DEVICE_TYPE_CPU:
      return 3;
    default:
      return 4;
  }
}

std::string Gibibytes(uint64_t bytes) {
  return absl::StrFormat("%.2f GiB", static_cast<double>(bytes) / (1 << 30));
}

std::string ListDevices(const std::vector<DeviceInfo>& devices) {
  std::vector<std::string> names;
  for (size_t i = 0; i < devices.size(); ++i) {
    names.push_back(absl::StrFormat("%d: %s", i, devices[i].name));
  }
  return names.empty() ? "there is no Vulkan device" : absl::StrJoin(names, ", ");
}

bool Excluded(const DeviceInfo& device, SoftwareUse software) {
  return software == (device.software() ? SoftwareUse::kNever : SoftwareUse::kOnly);
}

absl::StatusOr<size_t> Usable(const std::vector<DeviceInfo>& devices, size_t index,
                              SoftwareUse software) {
  const DeviceInfo& device = devices[index];
  if (Excluded(device, software)) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "Vulkan device %d, %s, %s", index, device.name,
        device.software() ? "is software, and --gpu=require wants a GPU (--gpu=software takes it)"
                          : "is a GPU, and --gpu=software wants a software driver"));
  }
  if (device.missing.empty()) return index;
  return absl::FailedPreconditionError(absl::StrFormat(
      "Vulkan device %d, %s, lacks %s", index, device.name, absl::StrJoin(device.missing, ", ")));
}

}  // namespace

std::string_view DeviceTypeName(VkPhysicalDeviceType type) {
  constexpr std::string_view kNames[] = {"discrete", "integrated", "virtual", "cpu", "other"};
  return kNames[Rank(type)];
}

std::string DescribeDevice(const DeviceInfo& info) {
  std::string text = absl::StrFormat(
      "%s (%s), %s, Vulkan %d.%d.%d\n", info.name, std::string(DeviceTypeName(info.type)),
      info.driver, VK_API_VERSION_MAJOR(info.api_version), VK_API_VERSION_MINOR(info.api_version),
      VK_API_VERSION_PATCH(info.api_version));
  for (size_t i = 0; i < info.heaps.size(); ++i) {
    absl::StrAppendFormat(&text, "  heap %d: %s%s\n", i, Gibibytes(info.heaps[i].bytes),
                          info.heaps[i].device_local ? ", device-local" : "");
  }
  absl::StrAppendFormat(&text, "  subgroups of %d (%d to %d), workgroups to %d, shared %d bytes\n",
                        info.subgroup_size, info.min_subgroup_size, info.max_subgroup_size,
                        info.max_workgroup_invocations, info.max_shared_memory_bytes);
  absl::StrAppendFormat(&text,
                        "  allocations to %s, push constants %d bytes, timestamps of %g ns\n",
                        Gibibytes(info.max_allocation_bytes), info.max_push_constant_bytes,
                        info.timestamp_valid_bits == 0 ? 0.0 : info.timestamp_period_ns);
  const auto append_shape = [](std::string* out, const MatrixShape& shape) {
    out->append(DescribeMatrixShape(shape));
  };
  absl::StrAppendFormat(
      &text, "  matrix units: %s\n",
      info.matrix_shapes.empty() ? "none" : absl::StrJoin(info.matrix_shapes, ", ", append_shape));
  absl::StrAppendFormat(&text, "  byte dot products: %s\n", info.fast_byte_dots ? "fast" : "slow");
  absl::StrAppendFormat(&text, "  imports: host pointer %s, dmabuf %s\n",
                        info.external_memory_host ? "yes" : "no",
                        info.external_memory_dmabuf ? "yes" : "no");
  if (!info.missing.empty()) {
    absl::StrAppendFormat(&text, "  unusable, lacks %s\n", absl::StrJoin(info.missing, ", "));
  }
  return text;
}

absl::StatusOr<size_t> ChooseDevice(const std::vector<DeviceInfo>& devices,
                                    std::string_view selector, SoftwareUse software) {
  if (!selector.empty()) {
    size_t index = 0;
    const char* end = selector.data() + selector.size();
    const auto parsed = std::from_chars(selector.data(), end, index);
    if (parsed.ec == std::errc() && parsed.ptr == end && index < devices.size()) {
      return Usable(devices, index, software);
    }
    const std::string wanted = absl::AsciiStrToLower(std::string(selector));
    for (size_t i = 0; i < devices.size(); ++i) {
      if (absl::AsciiStrToLower(devices[i].name).find(wanted) != std::string::npos) {
        return Usable(devices, i, software);
      }
    }
    return absl::NotFoundError(absl::StrFormat("no Vulkan device matches '%s': %s",
                                               std::string(selector), ListDevices(devices)));
  }
  if (devices.empty()) {
    return absl::NotFoundError(
        "no Vulkan device: install a driver (mesa-vulkan-drivers has one for any machine)");
  }
  std::vector<size_t> order(devices.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&devices, software](size_t a, size_t b) {
    const bool a_excluded = Excluded(devices[a], software);
    if (a_excluded != Excluded(devices[b], software)) return !a_excluded;
    const bool a_usable = devices[a].missing.empty(), b_usable = devices[b].missing.empty();
    if (a_usable != b_usable) return a_usable;
    return Rank(devices[a].type) < Rank(devices[b].type);
  });
  return Usable(devices, order.front(), software);
}

}  // namespace tandem::vulkan

#include "services/gpu_worker/emulator/driver/device_info.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include "services/gpu_worker/emulator/driver/abi.h"

namespace tandem::rdna {
namespace {

constexpr uint32_t kGbAddrConfig = 0x263e;

int Put(const drm_amdgpu_info& question, const void* answer, size_t bytes) {
  auto* to = reinterpret_cast<unsigned char*>(question.return_pointer);
  if (to == nullptr) return EINVAL;
  std::memset(to, 0, question.return_size);
  std::memcpy(to, answer, std::min<size_t>(bytes, question.return_size));
  return 0;
}

template <typename T>
int Put(const drm_amdgpu_info& question, const T& answer) {
  return Put(question, &answer, sizeof answer);
}

int DeviceInfo(const Chip& chip, const drm_amdgpu_info& question) {
  drm_amdgpu_info_device d = {};
  d.device_id = chip.pci_device;
  d.chip_rev = 1;
  d.external_rev = chip.external_revision;
  d.pci_rev = chip.pci_revision;
  d.family = chip.family;
  d.num_shader_engines = chip.shader_engines;
  d.num_shader_arrays_per_engine = 2;
  d.gpu_counter_freq = kCounterKhz;
  d.max_engine_clock = chip.max_clock_khz;
  d.max_memory_clock = chip.memory_clock_khz;
  d.cu_active_number = chip.cus();
  for (uint32_t engine = 0; engine < chip.shader_engines; ++engine) {
    for (uint32_t array = 0; array < 2; ++array) {
      d.cu_bitmap[engine][array] = (1u << chip.cus_per_array) - 1;
    }
  }
  d.num_rb_pipes = 4 * chip.shader_engines;
  d.enabled_rb_pipes_mask = (1u << d.num_rb_pipes) - 1;
  d.num_hw_gfx_contexts = 8;
  d.ids_flags = AMDGPU_IDS_FLAGS_FUSION;
  d.virtual_address_offset = 1 << 21;
  d.virtual_address_max = uint64_t{1} << 47;
  d.virtual_address_alignment = 4096;
  d.pte_fragment_size = 1 << 21;
  d.gart_page_size = 4096;
  d.high_va_offset = 0xffff800000000000;
  d.high_va_max = 0xfffffffffff00000;
  d.vram_type = AMDGPU_VRAM_TYPE_DDR5;
  d.vram_bit_width = chip.memory_bits;
  d.wave_front_size = 32;
  d.num_shader_visible_vgprs = 1024;
  d.num_cu_per_sh = chip.cus_per_array;
  d.num_tcc_blocks = chip.l2_blocks;
  d.max_gs_waves_per_vgt = 32;
  abi::DeviceInfo all = {};
  std::memcpy(all.old, &d, sizeof all.old);
  all.tcp_cache_kib = 32;
  all.num_sqc_per_wgp = 1;
  all.sqc_data_cache_kib = 16;
  all.sqc_inst_cache_kib = 32;
  all.gl1c_cache_kib = 256;
  all.gl2c_cache_kib = chip.l2_kib;
  all.mall_bytes = uint64_t{chip.mall_mib} << 20;
  return Put(question, all);
}

int IpInfo(const Chip& chip, const drm_amdgpu_info& question) {
  drm_amdgpu_info_hw_ip ip = {};
  const uint32_t type = question.query_hw_ip.type;
  if (type == AMDGPU_HW_IP_GFX || type == AMDGPU_HW_IP_COMPUTE) {
    ip.hw_ip_version_major = 11;
    ip.ib_start_alignment = ip.ib_size_alignment = 32;
    ip.available_rings = type == AMDGPU_HW_IP_GFX ? 1 : 0xf;
    // Older headers call the last field a pad.
    std::memcpy(reinterpret_cast<unsigned char*>(&ip) + sizeof ip - 4, &chip.gfx_version, 4);
  } else if (type == AMDGPU_HW_IP_DMA) {
    // The engine for copies is there, but without a ring: it is not emulated.
    ip.hw_ip_version_major = 6;
  }
  return Put(question, ip);
}

int MemoryInfo(Device& device, const drm_amdgpu_info& question) {
  const BufferTable::Usage all = device.buffers().capacity(), used = device.buffers().usage();
  drm_amdgpu_memory_info memory = {};
  memory.vram = {all.vram, all.vram, used.vram, all.vram};
  memory.cpu_accessible_vram = memory.vram;
  memory.gtt = {all.gtt, all.gtt, used.gtt, all.gtt};
  return Put(question, memory);
}

}  // namespace

int AnswerInfo(Device& device, const drm_amdgpu_info& question) {
  const Chip& chip = device.chip();
  const BufferTable::Usage all = device.buffers().capacity(), used = device.buffers().usage();
  switch (question.query) {
    case AMDGPU_INFO_ACCEL_WORKING:
      return Put(question, uint32_t{1});
    case AMDGPU_INFO_DEV_INFO:
      return DeviceInfo(chip, question);
    case AMDGPU_INFO_HW_IP_INFO:
      return IpInfo(chip, question);
    case AMDGPU_INFO_HW_IP_COUNT:
      return Put(question, uint32_t{question.query_hw_ip.type <= AMDGPU_HW_IP_COMPUTE});
    case AMDGPU_INFO_FW_VERSION: {
      drm_amdgpu_info_firmware firmware = {};
      firmware.ver = 2000;
      firmware.feature = 50;
      return Put(question, firmware);
    }
    case AMDGPU_INFO_MEMORY:
      return MemoryInfo(device, question);
    case AMDGPU_INFO_VRAM_GTT:
      return Put(question, drm_amdgpu_info_vram_gtt{all.vram, all.vram, all.gtt});
    case AMDGPU_INFO_VRAM_USAGE:
    case AMDGPU_INFO_VIS_VRAM_USAGE:
      return Put(question, used.vram);
    case AMDGPU_INFO_GTT_USAGE:
      return Put(question, used.gtt);
    case AMDGPU_INFO_TIMESTAMP:
      return Put(question, device.clock().Ticks());
    case AMDGPU_INFO_READ_MMR_REG: {
      const uint32_t value = question.read_mmr_reg.dword_offset == kGbAddrConfig ? 0x545 : 0;
      const std::vector<uint32_t> values(std::min(question.read_mmr_reg.count, 256u), value);
      return Put(question, values.data(), values.size() * 4);
    }
    case abi::kInfoMaxIbs: {
      // With zero here RADV would submit its preambles for ever.
      uint32_t most[abi::kIpTypes];
      std::fill(std::begin(most), std::end(most), 192);
      return Put(question, most);
    }
    case abi::kInfoGpuvmFault: {
      const uint64_t address = device.fault_address();
      return Put(question, abi::GpuvmFault{address, address != 0 ? 1u : 0u, 0});
    }
    case AMDGPU_INFO_SENSOR:
    case AMDGPU_INFO_VIDEO_CAPS:
      return EINVAL;
    case AMDGPU_INFO_NUM_BYTES_MOVED:
    case AMDGPU_INFO_NUM_EVICTIONS:
    case AMDGPU_INFO_NUM_VRAM_CPU_PAGE_FAULTS:
    case AMDGPU_INFO_VRAM_LOST_COUNTER:
      return Put(question, uint64_t{0});
    default:
      if (device.settings().trace > 0) {
        std::fprintf(stderr, "gpu emulator: info query %#x is not known\n", question.query);
      }
      return EINVAL;
  }
}

}  // namespace tandem::rdna

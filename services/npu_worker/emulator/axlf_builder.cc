#include "services/npu_worker/emulator/axlf_builder.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string_view>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"

namespace tandem::npu::emulator {
namespace {

// Section kinds and field values of xrt/detail/xclbin.h.
enum SectionKind : uint32_t {
  kEmbeddedMetadata = 2,
  kMemTopology = 6,
  kConnectivity = 7,
  kIpLayout = 8,
  kGroupTopology = 26,
  kGroupConnectivity = 27,
  kAiePartition = 32,
};
constexpr uint8_t kMemDram = 2;
constexpr uint32_t kIpPsKernel = 7;
constexpr uint32_t kSubtypeDpu = 1;
constexpr uint32_t kHostGroup = 0;
constexpr uint32_t kSramGroup = 1;

constexpr size_t kHeadBytes = 456;
constexpr size_t kPdiBytes = 96;  // struct aie_pdi; a CDO group has as many
constexpr size_t kSectionHeaderBytes = 40;

// Little-endian bytes at given offsets; grows as it is written.
class Bytes {
 public:
  explicit Bytes(size_t size = 0) : data_(size, 0) {}

  template <typename T>
  void Put(size_t offset, T value) {
    PutBytes(offset, &value, sizeof(value));
  }
  void PutText(size_t offset, std::string_view text) { PutBytes(offset, text.data(), text.size()); }
  void PutBytes(size_t offset, const void* bytes, size_t n) {
    if (data_.size() < offset + n) data_.resize(offset + n, 0);
    if (n > 0) std::memcpy(data_.data() + offset, bytes, n);
  }
  // Adds bytes at the next multiple of 8 and pads to another.  Returns where they start.
  uint32_t Append(const void* bytes, size_t n) {
    Pad();
    const size_t offset = data_.size();
    PutBytes(offset, bytes, n);
    Pad();
    return static_cast<uint32_t>(offset);
  }
  void Pad() { data_.resize((data_.size() + 7) / 8 * 8, 0); }
  void Fill(size_t offset, size_t n, uint8_t value) {
    std::fill_n(data_.begin() + static_cast<ptrdiff_t>(offset), n, value);
  }
  size_t size() const { return data_.size(); }
  const std::vector<uint8_t>& data() const { return data_; }

 private:
  std::vector<uint8_t> data_;
};

// struct mem_topology: count, then 40-byte mem_data.
Bytes MemTopology() {
  Bytes out(8 + 2 * 40);
  out.Put<uint32_t>(0, 2);
  const auto bank = [&out](size_t index, std::string_view tag, uint64_t kib) {
    const size_t at = 8 + 40 * index;
    out.Put<uint8_t>(at, kMemDram);
    out.Put<uint8_t>(at + 1, 1);  // used
    out.Put<uint64_t>(at + 8, kib);
    out.Put<uint64_t>(at + 16, 0x4000000);  // base address
    out.PutText(at + 24, tag);
  };
  bank(kHostGroup, "HOST", 0x10000);
  bank(kSramGroup, "SRAM", 0xC000);
  return out;
}

// Of a kernel, in the order of the options: metadata, layout and partition name it by this.
uint32_t DpuKernelId(size_t kernel) { return 0x901 + static_cast<uint32_t>(kernel); }

// struct connectivity: count, then (argument, ip, memory) triples.
Bytes Connectivity(const AxlfOptions& options) {
  Bytes out(4);
  uint32_t count = 0;
  const auto connect = [&](uint32_t argument, uint32_t ip, uint32_t memory) {
    const size_t at = 4 + size_t{12} * count++;
    out.Put<uint32_t>(at, argument);
    out.Put<uint32_t>(at + 4, ip);
    out.Put<uint32_t>(at + 8, memory);
  };
  for (uint32_t ip = 0; ip < options.kernels.size(); ++ip) {
    connect(1, ip, kSramGroup);
    for (uint32_t i = 0; i < options.kernels[ip].num_data_buffers; ++i) {
      connect(3 + i, ip, kHostGroup);
    }
  }
  out.Put<uint32_t>(0, count);
  return out;
}

// struct ip_layout: count, then 80-byte ip_data, one for each kernel.
Bytes IpLayout(const AxlfOptions& options) {
  Bytes out(8 + 80 * options.kernels.size());
  out.Put<uint32_t>(0, static_cast<uint32_t>(options.kernels.size()));
  for (size_t i = 0; i < options.kernels.size(); ++i) {
    const size_t at = 8 + 80 * i;
    out.Put<uint32_t>(at, kIpPsKernel);
    out.Put<uint32_t>(at + 4, kSubtypeDpu | (DpuKernelId(i) & 0xFFFu) << 16);
    out.Put<uint64_t>(at + 8, ~uint64_t{0});  // no base address
    out.PutText(at + 16, options.kernels[i].name + ":" + options.kernels[i].instance_name);
  }
  return out;
}

std::string KernelMetadata(const AxlfKernel& kernel, uint32_t dpu_kernel_id) {
  std::string xml = absl::StrFormat(
      "<kernel name=\"%s\" language=\"c\" type=\"dpu\">"
      "<extended-data subtype=\"1\" functional=\"0\" dpu_kernel_id=\"%#x\"/>",
      kernel.name, dpu_kernel_id);
  const auto argument = [&xml](const std::string& name, int qualifier, uint32_t id, int size,
                               uint32_t offset, const char* type) {
    xml += absl::StrFormat(
        "<arg name=\"%s\" addressQualifier=\"%d\" id=\"%d\" size=\"%#x\" offset=\"%#x\" "
        "hostOffset=\"0x0\" hostSize=\"%#x\" type=\"%s\"/>",
        name, qualifier, id, size, offset, size, type);
  };
  argument("opcode", 0, 0, 8, 0x00, "uint64_t");
  argument("instr", 1, 1, 8, 0x08, "char *");
  argument("ninstr", 0, 2, 4, 0x10, "uint32_t");
  for (uint32_t i = 0; i < kernel.num_data_buffers; ++i) {
    argument(absl::StrFormat("bo%d", i), 1, 3 + i, 8, 0x14 + 8 * i, "void*");
  }
  return xml + absl::StrFormat("<instance name=\"%s\"/></kernel>", kernel.instance_name);
}

Bytes Metadata(const AxlfOptions& options) {
  std::string xml = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<project><platform><device><core>";
  for (size_t i = 0; i < options.kernels.size(); ++i) {
    xml += KernelMetadata(options.kernels[i], DpuKernelId(i));
  }
  xml += "</core></device></platform></project>\n";
  Bytes out;
  out.PutText(0, xml);
  return out;
}

// struct aie_pdi at `pdi`, with one CDO group that names the kernel.
void PutPdi(Bytes& out, size_t pdi, const AxlfOptions& options, size_t kernel) {
  std::array<uint8_t, 16> uuid = options.uuid;
  uuid.back() = static_cast<uint8_t>(uuid.back() + kernel);
  const std::vector<uint8_t>& bytes = options.kernels[kernel].pdi;
  out.PutBytes(pdi, uuid.data(), uuid.size());
  const uint32_t image = out.Append(bytes.data(), bytes.size());
  out.Put<uint32_t>(pdi + 16, static_cast<uint32_t>(bytes.size()));
  out.Put<uint32_t>(pdi + 20, image);

  const uint8_t zeros[kPdiBytes] = {};
  const uint32_t group = out.Append(zeros, sizeof(zeros));
  out.Put<uint32_t>(pdi + 24, 1);
  out.Put<uint32_t>(pdi + 28, group);
  const uint32_t name = out.Append("DPU", 4);
  out.Put<uint32_t>(group, name);
  out.Put<uint8_t>(group + 4, 1);            // primary
  out.Put<uint64_t>(group + 8, 1 + kernel);  // id of the PDI
  const uint64_t kernel_id = DpuKernelId(kernel);
  const uint32_t kernel_ids = out.Append(&kernel_id, sizeof(kernel_id));
  out.Put<uint32_t>(group + 16, 1);
  out.Put<uint32_t>(group + 20, kernel_ids);
  const uint32_t pre_group = 0xC1;
  const uint32_t pre_groups = out.Append(&pre_group, sizeof(pre_group));
  out.Put<uint32_t>(group + 24, 1);
  out.Put<uint32_t>(group + 28, pre_groups);
}

// struct aie_partition with a PDI for each kernel.
Bytes AiePartition(const AxlfOptions& options) {
  Bytes out(184);
  out.Put<uint32_t>(4, out.Append("QoS", 4));
  out.Put<uint32_t>(8, 2048);  // operations per cycle
  out.Put<uint16_t>(32, options.num_columns);
  const uint16_t start_column = 0;
  const uint32_t start_columns = out.Append(&start_column, sizeof(start_column));
  out.Put<uint32_t>(40, 1);
  out.Put<uint32_t>(44, start_columns);

  const std::vector<uint8_t> zeros(kPdiBytes * options.kernels.size(), 0);
  const uint32_t pdis = out.Append(zeros.data(), zeros.size());
  out.Put<uint32_t>(120, static_cast<uint32_t>(options.kernels.size()));
  out.Put<uint32_t>(124, pdis);
  for (size_t i = 0; i < options.kernels.size(); ++i) PutPdi(out, pdis + kPdiBytes * i, options, i);
  const uint32_t commit = out.Append("", 1);
  out.Put<uint32_t>(128, commit);
  return out;
}

absl::Status CheckKernels(const AxlfOptions& options) {
  std::set<std::string_view> names;
  for (const AxlfKernel& kernel : options.kernels) {
    const size_t name_bytes = kernel.name.size() + 1 + kernel.instance_name.size();
    if (kernel.name.empty() || name_bytes > 63) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "xclbin: kernel '%s:%s' must have 1 to 63 bytes", kernel.name, kernel.instance_name));
    }
    if (!names.insert(kernel.name).second) {
      return absl::InvalidArgumentError(absl::StrFormat("xclbin: two kernels '%s'", kernel.name));
    }
  }
  if (names.empty()) return absl::InvalidArgumentError("xclbin: no kernel");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<uint8_t>> BuildAxlf(const AxlfOptions& options) {
  TANDEM_RETURN_IF_ERROR(CheckKernels(options));
  if (options.uuid == std::array<uint8_t, 16>{}) {
    return absl::InvalidArgumentError("xclbin: the uuid is all zero");
  }
  const Bytes memory = MemTopology();
  const Bytes connectivity = Connectivity(options);
  const struct {
    SectionKind kind;
    Bytes bytes;
  } sections[] = {
      {kMemTopology, memory},
      {kAiePartition, AiePartition(options)},
      {kEmbeddedMetadata, Metadata(options)},
      {kIpLayout, IpLayout(options)},
      {kConnectivity, connectivity},
      {kGroupConnectivity, connectivity},
      {kGroupTopology, memory},
  };
  const uint32_t num_sections = std::size(sections);

  Bytes out(kHeadBytes + kSectionHeaderBytes * num_sections);
  out.PutText(0, "xclbin2");
  out.Put<int32_t>(8, -1);         // no signature
  out.Fill(12, 28, 0xFF);          // reserved
  out.Fill(40, 256, 0xFF);         // key block
  constexpr size_t kHeader = 304;  // struct axlf_header
  for (uint32_t i = 0; i < num_sections; ++i) {
    const Bytes& bytes = sections[i].bytes;
    const size_t at = kHeadBytes + kSectionHeaderBytes * i;
    const uint32_t start = out.Append(bytes.data().data(), bytes.size());
    out.Put<uint32_t>(at, sections[i].kind);
    out.Put<uint64_t>(at + 24, start);
    out.Put<uint64_t>(at + 32, bytes.size());
  }
  out.Put<uint64_t>(kHeader, out.size());
  out.Put<uint8_t>(kHeader + 26, 2);  // made for XRT 2.13 and later
  out.Put<uint8_t>(kHeader + 27, 13);
  out.PutBytes(kHeader + 112, options.uuid.data(), options.uuid.size());
  out.Put<uint32_t>(kHeader + 144, num_sections);
  return out.data();
}

}  // namespace tandem::npu::emulator

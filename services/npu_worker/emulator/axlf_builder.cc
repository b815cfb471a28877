#include "services/npu_worker/emulator/axlf_builder.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "absl/strings/str_format.h"

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

// struct connectivity: count, then (argument, ip, memory) triples.
Bytes Connectivity(uint32_t num_data_buffers) {
  Bytes out(4 + 12 * (1 + size_t{num_data_buffers}));
  out.Put<uint32_t>(0, 1 + num_data_buffers);
  const auto connect = [&out](size_t index, uint32_t argument, uint32_t memory) {
    out.Put<uint32_t>(4 + 12 * index, argument);
    out.Put<uint32_t>(12 + 12 * index, memory);
  };
  connect(0, 1, kSramGroup);
  for (uint32_t i = 0; i < num_data_buffers; ++i) connect(1 + i, 3 + i, kHostGroup);
  return out;
}

// struct ip_layout with one ip_data.
Bytes IpLayout(const AxlfOptions& options) {
  Bytes out(8 + 80);
  out.Put<uint32_t>(0, 1);
  out.Put<uint32_t>(8, kIpPsKernel);
  out.Put<uint32_t>(12, kSubtypeDpu | (options.dpu_kernel_id & 0xFFFu) << 16);
  out.Put<uint64_t>(16, ~uint64_t{0});  // no base address
  out.PutText(24, options.kernel_name + ":" + options.instance_name);
  return out;
}

Bytes Metadata(const AxlfOptions& options) {
  std::string xml = absl::StrFormat(
      "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<project><platform><device><core>"
      "<kernel name=\"%s\" language=\"c\" type=\"dpu\">"
      "<extended-data subtype=\"1\" functional=\"0\" dpu_kernel_id=\"%#x\"/>",
      options.kernel_name, options.dpu_kernel_id);
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
  for (uint32_t i = 0; i < options.num_data_buffers; ++i) {
    argument(absl::StrFormat("bo%d", i), 1, 3 + i, 8, 0x14 + 8 * i, "void*");
  }
  xml += absl::StrFormat("<instance name=\"%s\"/></kernel></core></device></platform></project>\n",
                         options.instance_name);
  Bytes out;
  out.PutText(0, xml);
  return out;
}

// struct aie_partition with one PDI, one CDO group that names the kernel.
Bytes AiePartition(const AxlfOptions& options) {
  Bytes out(184);
  out.Put<uint32_t>(4, out.Append("QoS", 4));
  out.Put<uint32_t>(8, 2048);  // operations per cycle
  out.Put<uint16_t>(32, options.num_columns);
  const uint16_t start_column = 0;
  const uint32_t start_columns = out.Append(&start_column, sizeof(start_column));
  out.Put<uint32_t>(40, 1);
  out.Put<uint32_t>(44, start_columns);

  const uint8_t zeros[96] = {};
  const uint32_t pdi = out.Append(zeros, sizeof(zeros));
  out.Put<uint32_t>(120, 1);
  out.Put<uint32_t>(124, pdi);
  out.PutBytes(pdi, options.uuid.data(), options.uuid.size());
  const uint32_t image = out.Append(options.pdi.data(), options.pdi.size());
  out.Put<uint32_t>(pdi + 16, static_cast<uint32_t>(options.pdi.size()));
  out.Put<uint32_t>(pdi + 20, image);

  const uint32_t group = out.Append(zeros, sizeof(zeros));
  out.Put<uint32_t>(pdi + 24, 1);
  out.Put<uint32_t>(pdi + 28, group);
  const uint32_t name = out.Append("DPU", 4);
  out.Put<uint32_t>(group, name);
  out.Put<uint8_t>(group + 4, 1);   // primary
  out.Put<uint64_t>(group + 8, 1);  // id of the PDI
  const uint64_t kernel_id = options.dpu_kernel_id;
  const uint32_t kernel_ids = out.Append(&kernel_id, sizeof(kernel_id));
  out.Put<uint32_t>(group + 16, 1);
  out.Put<uint32_t>(group + 20, kernel_ids);
  const uint32_t pre_group = 0xC1;
  const uint32_t pre_groups = out.Append(&pre_group, sizeof(pre_group));
  out.Put<uint32_t>(group + 24, 1);
  out.Put<uint32_t>(group + 28, pre_groups);
  const uint32_t commit = out.Append("", 1);
  out.Put<uint32_t>(128, commit);
  return out;
}

}  // namespace

absl::StatusOr<std::vector<uint8_t>> BuildAxlf(const AxlfOptions& options) {
  const size_t name_bytes = options.kernel_name.size() + 1 + options.instance_name.size();
  if (options.kernel_name.empty() || name_bytes > 63) {
    return absl::InvalidArgumentError(
        absl::StrFormat("xclbin: kernel '%s:%s' must have 1 to 63 bytes", options.kernel_name,
                        options.instance_name));
  }
  if (options.uuid == std::array<uint8_t, 16>{}) {
    return absl::InvalidArgumentError("xclbin: the uuid is all zero");
  }
  const Bytes memory = MemTopology();
  const Bytes connectivity = Connectivity(options.num_data_buffers);
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

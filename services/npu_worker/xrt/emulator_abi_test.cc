// Holds what the emulator and the host code take from XRT's binary interfaces against the
// headers of the XRT that is installed.
#include <ert.h>
#include <gtest/gtest.h>
#include <xclbin.h>
#include <xrt.h>

#include <cstddef>
#include <cstring>
#include <type_traits>

#include "services/common/testing/status_matchers.h"
#include "services/npu_worker/emulator/axlf_builder.h"
#include "services/npu_worker/emulator/ert_packet.h"
#include "services/npu_worker/emulator/xcl_abi.h"

namespace tandem::npu::emulator {
namespace {

static_assert(std::is_same_v<XclDevice, xclDeviceHandle>);
static_assert(std::is_same_v<XclBuffer, xclBufferHandle>);
static_assert(std::is_same_v<XclExport, xclBufferExportHandle>);
static_assert(kXclNullBuffer == XRT_NULL_BO);
static_assert(kXclNullExport == XRT_NULL_BO_EXPORT);
static_assert(kXclCommandBufferFlag == XCL_BO_FLAGS_EXECBUF);
static_assert(sizeof(XclBufferProperties) == sizeof(xclBOProperties));
static_assert(offsetof(XclBufferProperties, paddr) == offsetof(xclBOProperties, paddr));
static_assert(sizeof(xclBOSyncDirection) == sizeof(int));
static_assert(static_cast<int>(CommandState::kCompleted) == ERT_CMD_STATE_COMPLETED);
static_assert(static_cast<int>(CommandState::kError) == ERT_CMD_STATE_ERROR);
static_assert(static_cast<int>(PacketOpcode::kStart) == ERT_START_CU);
static_assert(static_cast<int>(PacketOpcode::kConfigure) == ERT_CONFIGURE);
static_assert(offsetof(axlf, m_sections) == 456);
static_assert(offsetof(axlf, m_header) == 304);
static_assert(sizeof(axlf_section_header) == 40);

TEST(EmulatorAbiTest, DecodesAPacketWrittenThroughXrtsOwnStructure) {
  uint32_t words[32] = {};
  auto* packet = reinterpret_cast<ert_start_kernel_cmd*>(words);
  packet->state = ERT_CMD_STATE_NEW;
  packet->extra_cu_masks = 1;
  packet->opcode = ERT_START_CU;
  packet->count = 2 + 7;
  words[2] = 1u << 2;  // the second of two masks
  words[3] = 3;        // opcode
  words[7] = 21;       // instruction words
  ASSERT_OK_AND_ASSIGN(const Invocation run, DecodeStart(words));
  EXPECT_EQ(run.cu, 34u);
  EXPECT_EQ(run.opcode, 3u);
  EXPECT_EQ(run.num_instruction_words, 21u);
  EXPECT_EQ(run.num_buffers, 1);
  SetState(words, CommandState::kCompleted);
  EXPECT_EQ(packet->state, ERT_CMD_STATE_COMPLETED);
}

TEST(EmulatorAbiTest, XrtsStructuresReadTheXclbin) {
  AxlfOptions options;
  options.uuid[3] = 0x42;
  options.kernels.push_back({.name = "rows", .num_data_buffers = 3});
  ASSERT_OK_AND_ASSIGN(const auto bytes, BuildAxlf(options));
  const auto* top = reinterpret_cast<const axlf*>(bytes.data());
  EXPECT_EQ(top->m_header.m_length, bytes.size());
  EXPECT_EQ(top->m_header.uuid[3], 0x42);
  ASSERT_EQ(top->m_header.m_numSections, 7u);
  for (uint32_t i = 0; i < top->m_header.m_numSections; ++i) {
    const axlf_section_header& section = top->m_sections[i];
    const uint8_t* data = bytes.data() + section.m_sectionOffset;
    if (section.m_sectionKind == IP_LAYOUT) {
      const auto* layout = reinterpret_cast<const ip_layout*>(data);
      EXPECT_EQ(layout->m_count, 2);
      EXPECT_STREQ(reinterpret_cast<const char*>(layout->m_ip_data[0].m_name), "MLIR_AIE:MLIRAIE");
      EXPECT_STREQ(reinterpret_cast<const char*>(layout->m_ip_data[1].m_name), "rows:MLIRAIE");
    }
    if (section.m_sectionKind == CONNECTIVITY) {
      const auto* links = reinterpret_cast<const connectivity*>(data);
      EXPECT_EQ(links->m_count, 10);
      EXPECT_EQ(links->m_connection[5].arg_index, 7);
      EXPECT_EQ(links->m_connection[5].m_ip_layout_index, 0);
      EXPECT_EQ(links->m_connection[9].arg_index, 5);
      EXPECT_EQ(links->m_connection[9].m_ip_layout_index, 1);
    }
    if (section.m_sectionKind == MEM_TOPOLOGY) {
      const auto* memory = reinterpret_cast<const mem_topology*>(data);
      EXPECT_EQ(memory->m_count, 2);
      EXPECT_STREQ(reinterpret_cast<const char*>(memory->m_mem_data[0].m_tag), "HOST");
    }
  }
}

}  // namespace
}  // namespace tandem::npu::emulator

#include "services/gpu_worker/emulator/driver/pm4.h"

#include <algorithm>
#include <iterator>

namespace tandem::rdna::pm4 {
namespace {

struct Row {
  uint8_t opcode;
  PacketFacts facts;
};

constexpr Row kEmulated[] = {
    {kNop, {"NOP", 1}},
    {kSetBase, {"SET_BASE", 3}},
    {kClearState, {"CLEAR_STATE", 1}},
    {kDispatchDirect, {"DISPATCH_DIRECT", 4}},
    {kDispatchIndirect, {"DISPATCH_INDIRECT", 2}},
    {kSetPredication, {"SET_PREDICATION", 3}},
    {kCondExec, {"COND_EXEC", 4}},
    {kContextControl, {"CONTEXT_CONTROL", 2}},
    {kWriteData, {"WRITE_DATA", 3}},
    {kWaitRegMem, {"WAIT_REG_MEM", 6}},
    {kIndirectBuffer, {"INDIRECT_BUFFER", 3}},
    {kCopyData, {"COPY_DATA", 5}},
    {kPfpSyncMe, {"PFP_SYNC_ME", 1}},
    {kEventWrite, {"EVENT_WRITE", 1}},
    {kReleaseMem, {"RELEASE_MEM", 7}},
    {kDmaData, {"DMA_DATA", 6}},
    {kAcquireMem, {"ACQUIRE_MEM", 6}},
    {kLoadShRegIndex, {"LOAD_SH_REG_INDEX", 4}},
    {kSetConfigReg, {"SET_CONFIG_REG", 2}},
    {kSetContextReg, {"SET_CONTEXT_REG", 2}},
    {kSetShReg, {"SET_SH_REG", 2}},
    {kSetUconfigReg, {"SET_UCONFIG_REG", 2}},
    {kSetUconfigRegIndex, {"SET_UCONFIG_REG_INDEX", 2}},
    {kSetShRegIndex, {"SET_SH_REG_INDEX", 2}},
    {kSetContextRegPairsPacked, {"SET_CONTEXT_REG_PAIRS_PACKED", 4}},
    {kSetShRegPairs, {"SET_SH_REG_PAIRS", 2}},
    {kSetShRegPairsPacked, {"SET_SH_REG_PAIRS_PACKED", 4}},
    {kSetShRegPairsPackedN, {"SET_SH_REG_PAIRS_PACKED_N", 4}},
};

// Others that the driver knows: they end a submission by their name.
constexpr struct {
  uint8_t opcode;
  const char* name;
} kOthers[] = {
    {0x13, "INDEX_BUFFER_SIZE"},
    {0x1e, "ATOMIC_MEM"},
    {0x1f, "OCCLUSION_QUERY"},
    {0x23, "PRED_EXEC"},
    {0x24, "DRAW_INDIRECT"},
    {0x25, "DRAW_INDEX_INDIRECT"},
    {0x26, "INDEX_BASE"},
    {0x27, "DRAW_INDEX_2"},
    {0x2a, "INDEX_TYPE"},
    {0x2c, "DRAW_INDIRECT_MULTI"},
    {0x2d, "DRAW_INDEX_AUTO"},
    {0x2f, "NUM_INSTANCES"},
    {0x34, "STRMOUT_BUFFER_UPDATE"},
    {0x35, "DRAW_INDEX_OFFSET_2"},
    {0x38, "DRAW_INDEX_INDIRECT_MULTI"},
    {0x39, "MEM_SEMAPHORE"},
    {0x41, "CP_DMA"},
    {0x43, "SURFACE_SYNC"},
    {0x45, "COND_WRITE"},
    {0x47, "EVENT_WRITE_EOP"},
    {0x48, "EVENT_WRITE_EOS"},
    {0x4c, "DISPATCH_MESH_INDIRECT_MULTI"},
    {0x4d, "DISPATCH_TASKMESH_GFX"},
    {0x4e, "DISPATCH_MESH_DIRECT"},
    {0x51, "CONTEXT_REG_RMW"},
    {0x59, "REWIND"},
    {0x5d, "PRIME_UTCL2"},
    {0x5e, "LOAD_UCONFIG_REG"},
    {0x5f, "LOAD_SH_REG"},
    {0x61, "LOAD_CONTEXT_REG"},
    {0x77, "SET_SH_REG_OFFSET"},
    {0x95, "HDP_FLUSH"},
    {0x9f, "LOAD_CONTEXT_REG_INDEX"},
    {0xa9, "DISPATCH_TASK_STATE_INIT"},
    {0xaa, "DISPATCH_TASKMESH_DIRECT_ACE"},
    {0xad, "DISPATCH_TASKMESH_INDIRECT_MULTI_ACE"},
    {0xb1, "EVENT_WRITE_ZPASS"},
    {0xb8, "SET_CONTEXT_REG_PAIRS"},
};

}  // namespace

std::optional<PacketFacts> FindPacket(uint8_t opcode) {
  const auto row = std::find_if(std::begin(kEmulated), std::end(kEmulated),
                                [opcode](const Row& r) { return r.opcode == opcode; });
  if (row == std::end(kEmulated)) return std::nullopt;
  return row->facts;
}

const char* PacketName(uint8_t opcode) {
  if (const auto facts = FindPacket(opcode)) return facts->name;
  for (const auto& other : kOthers) {
    if (other.opcode == opcode) return other.name;
  }
  return nullptr;
}

}  // namespace tandem::rdna::pm4

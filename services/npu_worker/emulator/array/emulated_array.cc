#include "services/npu_worker/emulator/array/emulated_array.h"

#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"

namespace tandem::npu::emulator {
namespace {

constexpr uint32_t kOffsetMask = (1u << 20) - 1;

}  // namespace

EmulatedArray::EmulatedArray(const ArrayShape& shape, DesignFactory make_design, Faults faults)
    : shape_(shape), make_design_(std::move(make_design)), faults_(faults) {
  Reset();
}

void EmulatedArray::Configure(DesignFactory make_design) {
  make_design_ = std::move(make_design);
  Reset();
}

void EmulatedArray::Reset() {
  design_.reset();
  fabric_ = std::make_unique<Fabric>();
  for (uint32_t column = 0; column < shape_.num_columns; ++column) {
    fabric_->shims.emplace_back(column);
    if (faults_.wrong_answer) fabric_->shims.back().DamageWrites();
    if (faults_.overrun) fabric_->shims.back().OverrunWrites();
  }
  fabric_->parameters.resize(shape_.num_columns);
  design_ = make_design_(*fabric_);
}

absl::Status EmulatedArray::Run(std::span<const uint32_t> words, Buffers buffers,
                                const AddressSpace::View& memory) {
  TANDEM_ASSIGN_OR_RETURN(const DecodedTransaction transaction, ReadTransaction(words));
  if (transaction.shape.generation != shape_.generation ||
      transaction.shape.num_columns > shape_.num_columns) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "control code for %d columns of generation %d, the array has %d of generation %d",
        transaction.shape.num_columns, transaction.shape.generation, shape_.num_columns,
        shape_.generation));
  }
  if (faults_.silent) return absl::OkStatus();
  const bool turns_wrong = ++num_runs_ > faults_.wrong_after && faults_.wrong_after > 0;
  for (ShimDma& shim : fabric_->shims) {
    if (turns_wrong) shim.DamageWrites();
    shim.SetMemory(&memory);
  }
  const absl::Status status = Execute(transaction, buffers);
  for (ShimDma& shim : fabric_->shims) shim.SetMemory(nullptr);
  if (!status.ok()) Reset();
  return status;
}

absl::Status EmulatedArray::Execute(const DecodedTransaction& transaction, Buffers buffers) {
  for (size_t i = 0; i < transaction.operations.size(); ++i) {
    const absl::Status status = Execute(transaction.operations[i], buffers);
    if (status.ok()) continue;
    return absl::Status(status.code(),
                        absl::StrFormat("operation %d of %d: %s", i, transaction.operations.size(),
                                        std::string(status.message())));
  }
  return CheckIdle();
}

absl::Status EmulatedArray::Execute(const Operation& operation, Buffers buffers) {
  switch (operation.kind) {
    case Operation::Kind::kWrite:
    case Operation::Kind::kBlockWrite:
      for (size_t i = 0; i < operation.values.size(); ++i) {
        const auto address = static_cast<uint32_t>(operation.address + i * sizeof(uint32_t));
        TANDEM_RETURN_IF_ERROR(Write(address, operation.values[i]));
      }
      return absl::OkStatus();
    case Operation::Kind::kMaskedWrite: {
      TANDEM_ASSIGN_OR_RETURN(const uint32_t before, Read(operation.address));
      return Write(operation.address,
                   (before & ~operation.mask) | (operation.values[0] & operation.mask));
    }
    case Operation::Kind::kSync:
      return Sync(operation.token);
    case Operation::Kind::kPatch: {
      if (!buffers.has_value()) return absl::OkStatus();
      const Tile tile = TileOf(operation.address);
      if (tile.row != 0 || operation.argument >= buffers->size()) {
        return absl::InvalidArgumentError(
            absl::StrFormat("patch of tile (%d, %d) with data buffer %d of %d", tile.column,
                            tile.row, operation.argument, buffers->size()));
      }
      return fabric_->shims[tile.column].Patch(operation.address & kOffsetMask,
                                               (*buffers)[operation.argument] + operation.offset);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> EmulatedArray::Read(uint32_t address) const {
  const Tile tile = TileOf(address);
  if (tile.row == 0) return fabric_->shims[tile.column].ReadRegister(address & kOffsetMask);
  return absl::InvalidArgumentError(
      absl::StrFormat("a masked write in tile (%d, %d) is not emulated", tile.column, tile.row));
}

absl::Status EmulatedArray::Write(uint32_t address, uint32_t value) {
  const Tile tile = TileOf(address);
  const uint32_t offset = address & kOffsetMask;
  if (tile.row == 0) return fabric_->shims[tile.column].WriteRegister(offset, value);
  if (tile.row >= kFirstCoreRow) return WriteCore(tile, offset, value);
  return absl::InvalidArgumentError(
      absl::StrFormat("register %#x of memory tile %d is not emulated", offset, tile.column));
}

absl::Status EmulatedArray::WriteCore(Tile tile, uint32_t offset, uint32_t value) {
  ParameterBox& box = fabric_->parameters[tile.column][tile.row - kFirstCoreRow];
  const uint32_t lock = CoreLockAddress({}, kParameterLock);
  const uint32_t end = kParameterAddress + kMaxParameters * sizeof(uint32_t);
  if (offset != lock && (offset < kParameterAddress || offset >= end)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "address %#x of core (%d, %d) is not emulated", offset, tile.column, tile.row));
  }
  if (box.is_full) {
    return absl::InvalidArgumentError(
        absl::StrFormat("core (%d, %d) has not taken its last parameters", tile.column, tile.row));
  }
  if (offset != lock) {
    box.words[(offset - kParameterAddress) / sizeof(uint32_t)] = value;
    return absl::OkStatus();
  }
  if (value != 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("lock of core (%d, %d): %d, must be 1", tile.column, tile.row, value));
  }
  box.is_full = true;
  return absl::OkStatus();
}

absl::Status EmulatedArray::Sync(const DmaToken& token) {
  if (token.tile.row != 0 || token.num_rows != 1 || token.channel >= kShimChannels ||
      token.num_columns == 0 || token.tile.column + token.num_columns > shape_.num_columns) {
    return absl::InvalidArgumentError(
        absl::StrFormat("a sync with channel %d of %d x %d tiles from (%d, %d)", token.channel,
                        token.num_columns, token.num_rows, token.tile.column, token.tile.row));
  }
  for (uint32_t i = 0; i < token.num_columns; ++i) {
    const uint32_t column = token.tile.column + i;
    bool moves = true;
    while (!fabric_->shims[column].TakeToken(token.direction, token.channel)) {
      // Parts of an object can have moved where no core went on: their token is asked for once more.
      if (std::exchange(moves, moves && design_->Advance())) continue;
      return absl::DeadlineExceededError(absl::StrFormat(
          "no token will come of column %d, channel %d %s: %s", column, token.channel,
          token.direction == DmaDirection::kFromTile ? "to memory" : "from memory",
          design_->Waiting()));
    }
  }
  return absl::OkStatus();
}

absl::Status EmulatedArray::CheckIdle() const {
  for (const ShimDma& shim : fabric_->shims) TANDEM_RETURN_IF_ERROR(shim.CheckIdle());
  for (uint32_t column = 0; column < shape_.num_columns; ++column) {
    for (uint32_t row = 0; row < kNumCoreRows; ++row) {
      if (!fabric_->parameters[column][row].is_full) continue;
      return absl::InvalidArgumentError(
          absl::StrFormat("control code has ended, and core (%d, %d) has not taken its parameters",
                          column, row + kFirstCoreRow));
    }
  }
  const std::string waiting = design_->Waiting();
  if (waiting.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("control code has ended, and %s", waiting));
}

}  // namespace tandem::npu::emulator

// Control code: what the NPU's controller executes for one command, register by register.
//
// A transaction is a header and operations, all little-endian words.  This is version 0.1 of AMD's format,
// which mlir-aie writes and which firmware, XRT and aiebu read.
//
//   header         minor 1, major 0 | generation, rows | columns, rows of memory tiles | operations | bytes
//                  (word 0: rows << 24 | generation << 16 | minor << 8 | major; word 1: memory rows << 8 |
//                  columns; word 2: number of operations; word 3: bytes of the whole transaction)
//
//   operation      words, the first of each is its code
//   write          0    | 0  | address | 0 | value | 24
//   block write    1    | 0  | address | 16 + 4 n | n values
//   masked write   3    | 0  | address | 0 | value | mask | 28
//   sync           0x80 | 16 | column << 16 | row << 8 | direction | channel << 24 | columns << 16 | rows << 8
//   address patch  0x81 | 48 | 0 0 0 0 | address | 0 | argument | 0 | offset | 0
//
// An address is a register of a tile: column << 25 | row << 20 | offset.  A sync waits for the token that
// a channel of a tile's DMA sends when it has finished a task.  A patch adds the device address of a data
// buffer of the command, and an offset, to the address in a shim descriptor's words 1 and 2.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem::npu {

struct Tile {
  uint32_t column = 0;
  uint32_t row = 0;  // 0: shim; 1: memory tile; 2 to 5: cores
  bool operator==(const Tile&) const = default;
};

// A register or a byte of memory of a tile.
constexpr uint32_t TileAddress(Tile tile, uint32_t offset) {
  return tile.column << 25 | tile.row << 20 | offset;
}
constexpr Tile TileOf(uint32_t address) { return {address >> 25, (address >> 20) & 0x1F}; }

// The array that control code is written for.
struct ArrayShape {
  uint32_t generation = 4;  // 3: AIE2 (npu1); 4: AIE2P (npu4)
  uint32_t num_columns = 8;
  uint32_t num_rows = 6;
  uint32_t num_memory_rows = 1;
  bool operator==(const ArrayShape&) const = default;
};

enum class DmaDirection : uint32_t { kFromTile = 0, kToTile = 1 };  // S2MM, MM2S

// Which token a sync waits for.
struct DmaToken {
  Tile tile;
  DmaDirection direction = DmaDirection::kFromTile;
  uint32_t channel = 0;
  uint32_t num_columns = 1;  // of tiles side by side
  uint32_t num_rows = 1;
  bool operator==(const DmaToken&) const = default;
};

// Thread-compatible.
class Transaction {
 public:
  explicit Transaction(const ArrayShape& shape);

  void Write(uint32_t address, uint32_t value);
  // Sets the bits in `mask` to those of `value`.
  void MaskedWrite(uint32_t address, uint32_t value, uint32_t mask);
  // REQUIRES at least one value.
  void BlockWrite(uint32_t address, std::span<const uint32_t> values);
  void Sync(const DmaToken& token);
  // `address`: word 1 of a shim descriptor.  `argument`: a data buffer of the command, from 0.
  void PatchAddress(uint32_t address, uint32_t argument, uint32_t offset);

  // Appends the operations of another transaction for the same array.
  void Append(const Transaction& other);

  uint32_t num_operations() const { return words_[2]; }
  // Of the whole transaction so far.
  uint32_t num_bytes() const { return words_[3]; }
  // The whole transaction so far.
  const std::vector<uint32_t>& words() const { return words_; }

 private:
  void Append(std::span<const uint32_t> words);

  std::vector<uint32_t> words_;
};

// An operation as read back.
struct Operation {
  enum class Kind : uint32_t {
    kWrite = 0,
    kBlockWrite = 1,
    kMaskedWrite = 3,
    kSync = 0x80,
    kPatch = 0x81
  };
  Kind kind = Kind::kWrite;
  uint32_t address = 0;          // all but kSync
  std::vector<uint32_t> values;  // kWrite, kMaskedWrite: one; kBlockWrite
  uint32_t mask = 0;             // kMaskedWrite
  DmaToken token;                // kSync
  uint32_t argument = 0;         // kPatch
  uint32_t offset = 0;           // kPatch
  bool operator==(const Operation&) const = default;
};

struct DecodedTransaction {
  ArrayShape shape;
  std::vector<Operation> operations;
};

// INVALID_ARGUMENT, with the word's index: another version, an operation of another kind or size, a tile
// outside the array, counts that do not agree, words past the end.
absl::StatusOr<DecodedTransaction> ReadTransaction(std::span<const uint32_t> words);

}  // namespace tandem::npu

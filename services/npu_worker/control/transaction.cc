#include "services/npu_worker/control/transaction.h"

#include "services/common/base/check.h"

namespace tandem::npu {
namespace {

constexpr uint32_t kMajor = 0;
constexpr uint32_t kMinor = 1;
constexpr size_t kFirstOperation = 4;

constexpr uint32_t Code(Operation::Kind kind) { return static_cast<uint32_t>(kind); }

}  // namespace

Transaction::Transaction(const ArrayShape& shape)
    : words_{shape.num_rows << 24 | shape.generation << 16 | kMinor << 8 | kMajor,
             shape.num_memory_rows << 8 | shape.num_columns, 0, 16} {}

void Transaction::Append(std::span<const uint32_t> words) {
  words_.insert(words_.end(), words.begin(), words.end());
  words_[3] = static_cast<uint32_t>(words_.size() * sizeof(uint32_t));
}

void Transaction::Append(const Transaction& other) {
  TANDEM_CHECK(other.words_[0] == words_[0] && other.words_[1] == words_[1]);
  words_[2] += other.words_[2];
  Append(std::span(other.words_).subspan(kFirstOperation));
}

void Transaction::Write(uint32_t address, uint32_t value) {
  const uint32_t words[] = {Code(Operation::Kind::kWrite), 0, address, 0, value, 24};
  ++words_[2];
  Append(words);
}

void Transaction::MaskedWrite(uint32_t address, uint32_t value, uint32_t mask) {
  const uint32_t words[] = {Code(Operation::Kind::kMaskedWrite), 0, address, 0, value, mask, 28};
  ++words_[2];
  Append(words);
}

void Transaction::BlockWrite(uint32_t address, std::span<const uint32_t> values) {
  TANDEM_CHECK(!values.empty());
  const uint32_t words[] = {Code(Operation::Kind::kBlockWrite), 0, address,
                            static_cast<uint32_t>(16 + values.size_bytes())};
  ++words_[2];
  Append(words);
  Append(values);
}

void Transaction::Sync(const DmaToken& token) {
  const uint32_t words[] = {
      Code(Operation::Kind::kSync), 16,
      token.tile.column << 16 | token.tile.row << 8 | static_cast<uint32_t>(token.direction),
      token.channel << 24 | token.num_columns << 16 | token.num_rows << 8};
  ++words_[2];
  Append(words);
}

void Transaction::PatchAddress(uint32_t address, uint32_t argument, uint32_t offset) {
  const uint32_t words[] = {
      Code(Operation::Kind::kPatch), 48, 0, 0, 0, 0, address, 0, argument, 0, offset, 0};
  ++words_[2];
  Append(words);
}

}  // namespace tandem::npu

#include <initializer_list>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/npu_worker/control/transaction.h"

namespace tandem::npu {
namespace {

constexpr size_t kHeaderWords = 4;

class Reader {
 public:
  explicit Reader(std::span<const uint32_t> words) : words_(words) {}

  absl::StatusOr<DecodedTransaction> Read() {
    TANDEM_RETURN_IF_ERROR(ReadHeader());
    while (at_ < words_.size()) {
      TANDEM_ASSIGN_OR_RETURN(Operation operation, ReadOperation());
      if (operation.kind != Operation::Kind::kSync) {
        TANDEM_RETURN_IF_ERROR(CheckTile(TileOf(operation.address)));
      }
      decoded_.operations.push_back(std::move(operation));
    }
    if (decoded_.operations.size() != words_[2]) {
      return Wrong(
          2, absl::StrFormat("%d operations, there are %d", words_[2], decoded_.operations.size()));
    }
    return std::move(decoded_);
  }

 private:
  static absl::Status Wrong(size_t index, const std::string& what) {
    return absl::InvalidArgumentError(absl::StrFormat("control code, word %d: %s", index, what));
  }

  absl::Status ReadHeader() {
    if (words_.size() < kHeaderWords) return Wrong(words_.size(), "the header is cut short");
    if ((words_[0] & 0xFFFF) != 0x100) {
      return Wrong(0, absl::StrFormat("version %d.%d, must be 0.1", words_[0] & 0xFF,
                                      (words_[0] >> 8) & 0xFF));
    }
    decoded_.shape = {.generation = (words_[0] >> 16) & 0xFF,
                      .num_columns = words_[1] & 0xFF,
                      .num_rows = words_[0] >> 24,
                      .num_memory_rows = (words_[1] >> 8) & 0xFF};
    if (words_[1] >> 16 != 0)
      return Wrong(1, absl::StrFormat("%#x, must be below 0x10000", words_[1]));
    if (words_[3] != words_.size_bytes()) {
      return Wrong(3, absl::StrFormat("%d bytes, there are %d", words_[3], words_.size_bytes()));
    }
    at_ = kHeaderWords;
    return absl::OkStatus();
  }

  absl::Status CheckTile(Tile tile) const {
    if (tile.column < decoded_.shape.num_columns && tile.row < decoded_.shape.num_rows) {
      return absl::OkStatus();
    }
    return Wrong(at_,
                 absl::StrFormat("tile (%d, %d) of an array of %d columns and %d rows", tile.column,
                                 tile.row, decoded_.shape.num_columns, decoded_.shape.num_rows));
  }

  // The words of an operation of `bytes`, whose size stands in its word `size_word`.  Those in `zeros` must
  // be 0.
  absl::StatusOr<std::span<const uint32_t>> Take(uint32_t bytes, size_t size_word,
                                                 std::initializer_list<size_t> zeros) {
    const size_t num_words = bytes / sizeof(uint32_t);
    if (bytes % sizeof(uint32_t) != 0 || num_words > words_.size() - at_) {
      return Wrong(at_, absl::StrFormat("an operation of %d bytes, %d are left", bytes,
                                        (words_.size() - at_) * sizeof(uint32_t)));
    }
    const std::span<const uint32_t> operation = words_.subspan(at_, num_words);
    if (operation[size_word] != bytes) {
      return Wrong(at_ + size_word,
                   absl::StrFormat("a size of %d bytes, must be %d", operation[size_word], bytes));
    }
    for (const size_t zero : zeros) {
      if (operation[zero] != 0) {
        return Wrong(at_ + zero, absl::StrFormat("%#x, must be 0", operation[zero]));
      }
    }
    at_ += num_words;
    return operation;
  }

  absl::StatusOr<Operation> ReadOperation() {
    Operation operation{.kind = static_cast<Operation::Kind>(words_[at_])};
    switch (operation.kind) {
      case Operation::Kind::kWrite: {
        TANDEM_ASSIGN_OR_RETURN(const auto words, Take(24, 5, {1, 3}));
        operation.address = words[2];
        operation.values = {words[4]};
        return operation;
      }
      case Operation::Kind::kMaskedWrite: {
        TANDEM_ASSIGN_OR_RETURN(const auto words, Take(28, 6, {1, 3}));
        operation.address = words[2];
        operation.values = {words[4]};
        operation.mask = words[5];
        return operation;
      }
      case Operation::Kind::kBlockWrite:
        return ReadBlockWrite(std::move(operation));
      case Operation::Kind::kSync:
        return ReadSync(std::move(operation));
      case Operation::Kind::kPatch: {
        TANDEM_ASSIGN_OR_RETURN(const auto words, Take(48, 1, {2, 3, 4, 5, 7, 9, 11}));
        operation.address = words[6];
        operation.argument = words[8];
        operation.offset = words[10];
        return operation;
      }
    }
    return Wrong(at_, absl::StrFormat("operation %#x is not known", words_[at_]));
  }

  absl::StatusOr<Operation> ReadBlockWrite(Operation operation) {
    const uint32_t bytes = words_.size() - at_ > 3 ? words_[at_ + 3] : 0;
    if (bytes < 20) return Wrong(at_, absl::StrFormat("a block write of %d bytes", bytes));
    TANDEM_ASSIGN_OR_RETURN(const auto words, Take(bytes, 3, {1}));
    operation.address = words[2];
    operation.values.assign(words.begin() + 4, words.end());
    return operation;
  }

  absl::StatusOr<Operation> ReadSync(Operation operation) {
    TANDEM_ASSIGN_OR_RETURN(const auto words, Take(16, 1, {}));
    if ((words[2] & 0xFF) > 1 || words[2] >> 24 != 0 || (words[3] & 0xFF) != 0) {
      return Wrong(at_ - 2, absl::StrFormat("a sync of %#x, %#x", words[2], words[3]));
    }
    operation.token = {.tile = {(words[2] >> 16) & 0xFF, (words[2] >> 8) & 0xFF},
                       .direction = static_cast<DmaDirection>(words[2] & 0xFF),
                       .channel = words[3] >> 24,
                       .num_columns = (words[3] >> 16) & 0xFF,
                       .num_rows = (words[3] >> 8) & 0xFF};
    TANDEM_RETURN_IF_ERROR(CheckTile(operation.token.tile));
    return operation;
  }

  const std::span<const uint32_t> words_;
  size_t at_ = 0;
  DecodedTransaction decoded_;
};

}  // namespace

absl::StatusOr<DecodedTransaction> ReadTransaction(std::span<const uint32_t> words) {
  return Reader(words).Read();
}

}  // namespace tandem::npu

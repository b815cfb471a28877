#include "services/npu_worker/emulator/array/row_design.h"

#include <algorithm>
#include <array>
#include <bit>

#include "absl/strings/str_format.h"
#include "services/npu_worker/kernels/aie/row_tile.h"
#include "services/npu_worker/kernels/aie_host/row_cores.h"

namespace tandem::npu::emulator {
namespace {

using Object = std::array<uint32_t, kRowObjectWords>;
constexpr size_t kPart = kRowMultiple;  // numbers of an object in bfloat16

}  // namespace

// The program of a core: takes RowParameters and computes that many rows.
class RowDesign::Core final : public EmulatedCore {
 public:
  Core(ParameterBox& parameters, Deal& rows, Broadcast& weights, Join& output, uint32_t column,
       uint32_t row)
      : box_(parameters),
        row_stream_(rows),
        weight_stream_(weights),
        output_(output),
        column_(column),
        row_(row) {}

  std::string Waiting() const override {
    if (need_ == Need::kParameters) return "";
    const char* const names[] = {"", "weights", "its row", "the second operand", "room"};
    return absl::StrFormat("core (%d, %d) waits for %s, row %d of %d", column_,
                           row_ + kFirstCoreRow, names[static_cast<int>(need_)], rows_done_,
                           parameters_.num_rows);
  }

 private:
  enum class Need { kParameters, kWeights, kRow, kSecond, kOutput };

  RowFunction Function() const { return static_cast<RowFunction>(parameters_.function); }
  size_t Size() const { return static_cast<size_t>(parameters_.size); }

  bool FireInMode() override {
    switch (need_) {
      case Need::kParameters:
        return TakeParameters();
      case Need::kWeights:
        if (!Take(weight_stream_, weights_)) return false;
        if (weights_.size() == Size()) BeginRow();
        return true;
      case Need::kRow:
        return TakeRow();
      case Need::kSecond:
        return TakeSecond();
      case Need::kOutput:
        return PutOutput();
    }
    return false;
  }

  bool TakeParameters() {
    if (!box_.is_full) return false;
    box_.is_full = false;
    std::array<uint32_t, sizeof(RowParameters) / sizeof(uint32_t)> words;
    std::copy_n(box_.words.begin(), words.size(), words.begin());
    parameters_ = std::bit_cast<RowParameters>(words);
    rows_done_ = 0;
    weights_.clear();
    BeginRow();
    if (Function() != RowFunction::kGeglu) need_ = Need::kWeights;
    return true;
  }

  void BeginRow() {
    if (rows_done_ == parameters_.num_rows) {
      need_ = Need::kParameters;
      return;
    }
    numbers_.clear();
    second_.clear();
    done_ = 0;
    heads_done_ = 0;
    need_ = Need::kRow;
  }

  // Appends an object's numbers.
  template <typename Stream>
  bool Take(Stream& stream, std::vector<float>& numbers) {
    Object object;
    if (!stream.Take(row_, object)) return false;
    for (const uint32_t word : object) numbers.push_back(std::bit_cast<float>(word));
    return true;
  }

  bool TakeRow() {
    if (!Take(row_stream_, numbers_)) return false;
    if (Function() == RowFunction::kGeglu) {
      if (numbers_.size() < 2 * kPart) return true;
      kRowCore.geglu(numbers_.data(), kPart, halves_.data());
      numbers_.clear();
      Offer(std::span(halves_).first(kPart));
      return true;
    }
    if (numbers_.size() < Size()) return true;
    if (Function() == RowFunction::kRope) {
      need_ = Need::kSecond;
      return true;
    }
    factor_ = kRowCore.norm_factor(numbers_.data(), static_cast<unsigned>(Size()),
                                   parameters_.inverse_count, parameters_.epsilon);
    if (Function() == RowFunction::kNormAdd) {
      need_ = Need::kSecond;
    } else {
      OfferNormed();
    }
    return true;
  }

  bool TakeSecond() {
    if (!Take(row_stream_, second_)) return false;
    if (Function() == RowFunction::kNormAdd) {
      kRowCore.norm_add_part(&numbers_[done_], &weights_[done_], kRowObjectWords, factor_,
                             second_.data());
      for (const float value : second_) words_.push_back(std::bit_cast<uint32_t>(value));
      second_.clear();
      need_ = Need::kOutput;
      return true;
    }
    if (second_.size() < Size()) return true;
    halves_.resize(Size());
    kRowCore.rope(second_.data(), weights_.data(), numbers_.data(), &numbers_[Size() / 2],
                  static_cast<unsigned>(Size()), parameters_.epsilon, halves_.data());
    second_.clear();
    Offer(halves_);
    return true;
  }

  void OfferNormed() {
    kRowCore.norm_part(&numbers_[done_], &weights_[done_], kPart, factor_, halves_.data());
    Offer(std::span(halves_).first(kPart));
  }

  void Offer(std::span<const bfloat16> halves) {
    for (size_t i = 0; i < halves.size(); i += 2) {
      words_.push_back(halves[i].bits | uint32_t{halves[i + 1].bits} << 16);
    }
    need_ = Need::kOutput;
  }

  // An object; then what comes next.
  bool PutOutput() {
    if (!output_.Put(row_, std::span(words_).first(kRowObjectWords))) return false;
    words_.erase(words_.begin(), words_.begin() + kRowObjectWords);
    if (!words_.empty()) return true;  // of a head
    const RowFunction function = Function();
    if (function == RowFunction::kRope) {
      if (++heads_done_ < parameters_.num_heads) {
        need_ = Need::kSecond;
        return true;
      }
    } else {
      done_ += function == RowFunction::kNormAdd ? kRowObjectWords : kPart;
      if (done_ < Size()) {
        if (function == RowFunction::kNorm) {
          OfferNormed();
        } else {
          need_ = function == RowFunction::kNormAdd ? Need::kSecond : Need::kRow;
        }
        return true;
      }
    }
    ++rows_done_;
    BeginRow();
    return true;
  }

  ParameterBox& box_;
  Deal& row_stream_;
  Broadcast& weight_stream_;
  Join& output_;
  const uint32_t column_;
  const uint32_t row_;

  Need need_ = Need::kParameters;
  RowParameters parameters_;
  int32_t rows_done_ = 0;
  int32_t heads_done_ = 0;
  size_t done_ = 0;  // numbers of the row that have left
  float factor_ = 0;
  std::vector<float> weights_;
  std::vector<float> numbers_;  // of the first operand
  std::vector<float> second_;
  std::vector<bfloat16> halves_ = std::vector<bfloat16>(kPart);
  std::vector<uint32_t> words_;  // of the output, on their way
};

RowDesign::RowDesign(const ArrayShape& shape, Fabric& fabric) {
  for (uint32_t column = 0; column < shape.num_columns; ++column) {
    rows_.emplace_back(fabric.shims[column], 0, kRowCores);
    // Two objects of a core's buffers.
    weights_.emplace_back(fabric.shims[column], 1, kRowCores, size_t{2} * kRowObjectWords);
    outputs_.emplace_back(fabric.shims[column], 0, kRowCores);
  }
  for (uint32_t column = 0; column < shape.num_columns; ++column) {
    for (uint32_t row = 0; row < kRowCores; ++row) {
      cores_.push_back(std::make_unique<Core>(fabric.parameters[column][row], rows_[column],
                                              weights_[column], outputs_[column], column, row));
    }
  }
}

}  // namespace tandem::npu::emulator

#include "services/loader/formats/tokenizer_model.h"

#include <string>

#include "services/loader/formats/wire_reader.h"

namespace tandem::loader {
namespace {

constexpr uint64_t kMaxPieces = 1 << 22;
constexpr uint64_t kBpe = 2;

absl::Status Expect(const WireField& field, WireType type, std::string_view name) {
  if (field.type == type) return absl::OkStatus();
  return FormatError(field.offset, absl::StrFormat("%s has wire type %d", std::string(name),
                                                   static_cast<int>(field.type)));
}

absl::Status ReadPiece(std::string_view bytes, uint64_t offset, VocabularyBuilder& vocabulary) {
  WireReader reader(bytes, offset);
  std::string piece;
  float score = 0.0f;
  int64_t type = 1;
  while (!reader.done()) {
    TANDEM_ASSIGN_OR_RETURN(const WireField field, reader.Next());
    if (field.number == 1) {
      TANDEM_RETURN_IF_ERROR(Expect(field, WireType::kBytes, "piece"));
      piece = std::string(field.bytes);
    } else if (field.number == 2) {
      TANDEM_RETURN_IF_ERROR(Expect(field, WireType::kFixed32, "score"));
      score = field.AsFloat();
    } else if (field.number == 3) {
      TANDEM_RETURN_IF_ERROR(Expect(field, WireType::kVarint, "type"));
      type = static_cast<int64_t>(field.value);
    }
  }
  const absl::Status status = vocabulary.Append(std::move(piece), score, type);
  return status.ok() ? status : FormatError(offset, MessageOf(status));
}

absl::Status ReadTrainerSpec(std::string_view bytes, uint64_t offset, TokenizerModel& model) {
  WireReader reader(bytes, offset);
  uint64_t model_type = 1;  // unigram, the proto's default
  while (!reader.done()) {
    TANDEM_ASSIGN_OR_RETURN(const WireField field, reader.Next());
    if (field.number == 3) {
      TANDEM_RETURN_IF_ERROR(Expect(field, WireType::kVarint, "model_type"));
      model_type = field.value;
    } else if (field.number == 41 || field.number == 42) {
      TANDEM_RETURN_IF_ERROR(Expect(field, WireType::kVarint, "bos_id or eos_id"));
      // int32 values travel sign-extended to 64 bits.
      const auto id = static_cast<int64_t>(field.value);
      if (id < -1 || id >= static_cast<int64_t>(kMaxPieces)) {
        return FormatError(field.offset, absl::StrFormat("token id %d is out of range", id));
      }
      (field.number == 41 ? model.bos_id : model.eos_id) = static_cast<int32_t>(id);
    }
  }
  if (model_type == kBpe) return absl::OkStatus();
  return FormatError(offset,
                     absl::StrFormat("model type %d is not supported; BPE (2) is", model_type));
}

absl::Status CheckNormalizerSpec(std::string_view bytes, uint64_t offset) {
  WireReader reader(bytes, offset);
  bool dummy_prefix = true;  // the proto's default
  while (!reader.done()) {
    TANDEM_ASSIGN_OR_RETURN(const WireField field, reader.Next());
    if (field.number != 3) continue;
    TANDEM_RETURN_IF_ERROR(Expect(field, WireType::kVarint, "add_dummy_prefix"));
    dummy_prefix = field.value != 0;
  }
  if (!dummy_prefix) return absl::OkStatus();
  return FormatError(offset, "the tokenizer adds a dummy prefix; Gemma 3's does not");
}

absl::Status CheckId(int32_t id, uint64_t num_pieces, std::string_view name) {
  if (id < 0 || static_cast<uint64_t>(id) < num_pieces) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("%s %d is out of range: there are %d pieces",
                                                    std::string(name), id, num_pieces));
}

}  // namespace

absl::StatusOr<TokenizerModel> ParseTokenizerModel(std::string_view bytes) {
  TokenizerModel model;
  WireReader reader(bytes, 0);
  bool has_trainer_spec = false;
  while (!reader.done()) {
    TANDEM_ASSIGN_OR_RETURN(const WireField field, reader.Next());
    if (field.number < 1 || field.number > 3) continue;
    TANDEM_RETURN_IF_ERROR(Expect(field, WireType::kBytes, "a part of the model"));
    const uint64_t offset = reader.OffsetOf(field.bytes);
    if (field.number == 1) {
      if (++model.num_pieces > kMaxPieces) {
        return FormatError(field.offset, absl::StrFormat("more than %d pieces", kMaxPieces));
      }
      TANDEM_RETURN_IF_ERROR(ReadPiece(field.bytes, offset, model.vocabulary));
    } else if (field.number == 2) {
      has_trainer_spec = true;
      TANDEM_RETURN_IF_ERROR(ReadTrainerSpec(field.bytes, offset, model));
    } else {
      TANDEM_RETURN_IF_ERROR(CheckNormalizerSpec(field.bytes, offset));
    }
  }
  if (model.num_pieces == 0) return FormatError(bytes.size(), "no pieces");
  if (!has_trainer_spec) return FormatError(bytes.size(), "no trainer settings");
  TANDEM_RETURN_IF_ERROR(CheckId(model.bos_id, model.num_pieces, "bos_id"));
  TANDEM_RETURN_IF_ERROR(CheckId(model.eos_id, model.num_pieces, "eos_id"));
  return model;
}

}  // namespace tandem::loader

// SentencePiece's own library, to compare with.  Its protobuf runtime conflicts with the system's,
// and its header defines another absl::string_view, so only one file of one test includes it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::gateway {

class SentencePieceOracle {
 public:
  // `model`: the bytes of a ModelProto.  Null if SentencePiece refuses it.
  static std::unique_ptr<SentencePieceOracle> Create(std::string_view model);
  ~SentencePieceOracle();

  std::vector<int> Encode(std::string_view text) const;

 private:
  SentencePieceOracle();
  struct Library;
  std::unique_ptr<Library> library_;
};

}  // namespace tandem::gateway

// SentencePiece itself, to compare with.  Its library brings a protobuf runtime of its own that
// does not get on with the system's, and its header an absl::string_view: it stays in one file of
// one test.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::gateway {

class SentencePieceOracle {
 public:
  // `model`: the bytes of a ModelProto.  Null when SentencePiece refuses it.
  static std::unique_ptr<SentencePieceOracle> Create(std::string_view model);
  ~SentencePieceOracle();

  std::vector<int> Encode(std::string_view text) const;

 private:
  SentencePieceOracle();
  struct Library;
  std::unique_ptr<Library> library_;
};

}  // namespace tandem::gateway

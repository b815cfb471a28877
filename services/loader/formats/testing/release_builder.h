// Writes safetensors releases for tests, right ones and wrong ones.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "services/common/testing/temporary_directory.h"
#include "services/loader/formats/testing/gguf_builder.h"

namespace tandem::loader::testing {

// A temporary directory that files are written to.
class TemporaryFolder : public TemporaryDirectory {
 public:
  // Returns the file's path.  Folders in `name` are made.
  std::string Write(const std::string& name, std::string_view bytes) const;
};

struct StoredTensor {
  std::string name;
  std::string dtype;
  std::vector<uint64_t> shape;
  std::string data;
};

// A file of this header, padded with spaces to a multiple of 8, and this data.
std::string SafetensorsFile(std::string header, std::string_view data);
// A right file of these tensors in this order.
std::string SafetensorsFile(const std::vector<StoredTensor>& tensors);

// A field of a protocol buffer: tag, and what belongs to its wire type.
std::string WireVarint(uint64_t value);
std::string WireField(uint32_t number, uint64_t value);
std::string WireField(uint32_t number, float value);
std::string WireField(uint32_t number, std::string_view bytes);
std::string WirePiece(const SmallPiece& piece);  // a whole ModelProto.pieces entry
// Trainer and normaliser settings as Gemma has them.
std::string WireSettings();
std::string TokenizerModelFile(const std::vector<SmallPiece>& pieces);

// A whole release of the same shape as SmallGguf, bfloat16, of a few KB.
struct Release {
  std::map<std::string, std::string> files;  // name -> content, but for the tensors
  std::vector<StoredTensor> tensors;

  StoredTensor& FindTensor(const std::string& name);
  // Puts `prefix` in the place of "model." in every decoder tensor's name.
  void Rename(const std::string& prefix);
  // Writes the files, and all tensors as model.safetensors.
  void Write(const TemporaryFolder& folder) const;
  // The same in shards with an index: tensor i goes to shard i % num_shards.
  void WriteSharded(const TemporaryFolder& folder, size_t num_shards) const;
};
Release SmallRelease();

}  // namespace tandem::loader::testing

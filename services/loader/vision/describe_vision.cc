#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/common/base/text_table.h"
#include "services/loader/vision/vision_source.h"

namespace tandem::loader {
namespace {

std::string Count(uint64_t value) { return absl::StrFormat("%d", value); }

std::string DescribeConfig(const VisionConfig& config) {
  TextTable table({false, false});
  const auto add = [&](const char* name, std::string value) {
    table.Add({name, std::move(value)});
  };
  const auto three = [](const std::array<float, 3>& values) {
    return absl::StrFormat("%g %g %g", values[0], values[1], values[2]);
  };
  add("architecture", "SigLIP, Gemma 3's projector");
  add("picture",
      absl::StrFormat("%d x %d pixels, %d patches of %d x %d", config.image_size, config.image_size,
                      config.num_patches(), config.patch_size, config.patch_size));
  add("soft tokens",
      absl::StrFormat("%d, each of %d x %d patches, %d wide", config.tokens_per_image,
                      config.pool_size(), config.pool_size(), config.text_hidden_dim));
  add("layers", Count(config.num_layers));
  add("hidden dim", Count(config.hidden_dim));
  add("ffn dim", Count(config.ffn_dim));
  add("heads", absl::StrFormat("%d, %d wide", config.num_heads, config.head_dim()));
  add("norm epsilon", absl::StrFormat("%g", config.layer_norm_eps));
  add("pixel mean", three(config.pixels.mean));
  add("pixel deviation", three(config.pixels.std));
  return table.Print("  ");
}

std::string DescribeTensors(const VisionSource& source) {
  std::vector<const VisionTensor*> in_file_order;
  for (const VisionTensor& tensor : source.tensors) in_file_order.push_back(&tensor);
  std::sort(in_file_order.begin(), in_file_order.end(),
            [](const VisionTensor* a, const VisionTensor* b) {
              return std::pair(a->file, a->file_offset) < std::pair(b->file, b->file_offset);
            });
  TextTable table({false, false, false, true, true});
  table.Add({"tensor", "type", "shape", "offset", "bytes"});
  uint64_t num_weights = 0;
  uint64_t num_bytes = 0;
  for (const VisionTensor* tensor : in_file_order) {
    table.Add({tensor->name, std::string(Traits(tensor->dtype).name),
               absl::StrFormat("[%s]", absl::StrJoin(tensor->file_shape, ", ")),
               Count(tensor->file_offset), Count(tensor->num_bytes)});
    num_weights += tensor->shape.rows * tensor->shape.cols;
    num_bytes += tensor->num_bytes;
  }
  return table.Print("  ") + absl::StrFormat("%d tensors, %d weights, %.2f MiB\n",
                                             in_file_order.size(), num_weights,
                                             static_cast<double>(num_bytes) / (1 << 20));
}

}  // namespace

std::string DescribeVisionSource(const VisionSource& source) {
  TextTable header({false, false});
  header.Add({"file", source.path});
  header.Add({"format", source.format});
  header.Add({"content", source.content_id});
  TextTable metadata({false, false});
  for (const auto& [key, value] : source.metadata) metadata.Add({key, value});
  return absl::StrFormat("Vision encoder\n%s\nConfiguration\n%s\nMetadata\n%s\nTensors\n%s",
                         header.Print("  "), DescribeConfig(source.config), metadata.Print("  "),
                         DescribeTensors(source));
}

}  // namespace tandem::loader

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/common/base/text_table.h"
#include "services/loader/formats/open_model.h"

namespace tandem::loader {
namespace {

std::string Count(uint64_t value) { return absl::StrFormat("%d", value); }

std::string Bytes(uint64_t bytes) {
  constexpr double kMiB = 1 << 20;
  return absl::StrFormat("%.2f MiB", static_cast<double>(bytes) / kMiB);
}

std::string DescribeConfig(const ModelConfig& config) {
  TextTable table({false, false});
  const auto add = [&](const char* name, std::string value) {
    table.Add({name, std::move(value)});
  };
  std::vector<uint32_t> global;
  for (uint32_t i = 0; i < config.num_layers; ++i) {
    if (config.is_global(i)) global.push_back(i);
  }
  add("architecture", config.architecture);
  add("layers", Count(config.num_layers));
  add("global layers", absl::StrFormat("%d: %s", global.size(), absl::StrJoin(global, " ")));
  add("hidden dim", Count(config.hidden_dim));
  add("ffn dim", Count(config.ffn_dim));
  add("heads", absl::StrFormat("%d, %d for keys and values, %d wide", config.num_heads,
                               config.num_kv_heads, config.head_dim));
  add("vocabulary", Count(config.vocab_size));
  add("context", Count(config.context_len));
  add("sliding window", Count(config.sliding_window));
  add("rope base", absl::StrFormat("%g global (positions / %g), %g local", config.rope_theta_global,
                                   config.rope_scale_global, config.rope_theta_local));
  add("attention scale", absl::StrFormat("%.7g", config.attention_scale));
  add("embedding scale", absl::StrFormat("%.7g", config.embedding_scale));
  add("norm epsilon", absl::StrFormat("%g", config.rms_norm_eps));
  add("begin token", absl::StrFormat("%d", config.bos_token_id));
  add("stop tokens", absl::StrJoin(config.stop_token_ids, " "));
  return table.Print("  ");
}

std::string DescribeSampling(const SamplingDefaults& sampling) {
  std::vector<std::string> parts;
  if (sampling.top_k) parts.push_back(absl::StrFormat("top_k %d", *sampling.top_k));
  if (sampling.top_p) parts.push_back(absl::StrFormat("top_p %g", *sampling.top_p));
  if (sampling.temperature) {
    parts.push_back(absl::StrFormat("temperature %g", *sampling.temperature));
  }
  return parts.empty() ? "none" : absl::StrJoin(parts, ", ");
}

std::string DescribeTensors(const ModelSource& source) {
  std::vector<const SourceTensor*> in_file_order;
  for (const SourceTensor& tensor : source.tensors()) in_file_order.push_back(&tensor);
  std::sort(in_file_order.begin(), in_file_order.end(),
            [](const SourceTensor* a, const SourceTensor* b) {
              return std::pair(a->file, a->file_offset) < std::pair(b->file, b->file_offset);
            });
  TextTable table({false, false, true, true, true, true});
  table.Add({"tensor", "type", "rows", "columns", "offset", "bytes"});
  uint64_t num_weights = 0;
  uint64_t num_bytes = 0;
  for (const SourceTensor* tensor : in_file_order) {
    table.Add({tensor->name, std::string(Traits(tensor->dtype).name), Count(tensor->shape.rows),
               Count(tensor->shape.cols), Count(tensor->file_offset), Count(tensor->num_bytes)});
    num_weights += tensor->shape.rows * tensor->shape.cols;
    num_bytes += tensor->num_bytes;
  }
  return table.Print("  ") +
         absl::StrFormat("%d tensors, %d weights, %s (%.3f bits a weight)\n", in_file_order.size(),
                         num_weights, Bytes(num_bytes),
                         8.0 * static_cast<double>(num_bytes) /
                             static_cast<double>(std::max<uint64_t>(1, num_weights)));
}

std::string DescribeSkipped(const std::vector<SkippedTensor>& skipped) {
  if (skipped.empty()) return "";
  TextTable table({false, false, false, true});
  uint64_t num_bytes = 0;
  for (const SkippedTensor& tensor : skipped) {
    table.Add({tensor.name, tensor.dtype,
               absl::StrFormat("[%s]", absl::StrJoin(tensor.shape, ", ")),
               Count(tensor.num_bytes)});
    num_bytes += tensor.num_bytes;
  }
  return absl::StrFormat("\nNot used by the text decoder\n%s%d tensors, %s\n", table.Print("  "),
                         skipped.size(), Bytes(num_bytes));
}

}  // namespace

std::string DescribeModelSource(const ModelSource& source) {
  TextTable header({false, false});
  header.Add({"format", std::string(source.format())});
  header.Add({"content", source.content_id()});
  header.Add({"sampling", DescribeSampling(source.sampling_defaults())});
  for (const std::string& warning : source.warnings()) header.Add({"warning", warning});
  header.Add({"chat template", source.chat_template().empty()
                                   ? std::string("none")
                                   : absl::StrFormat("%d bytes", source.chat_template().size())});
  TextTable metadata({false, false});
  for (const auto& [key, value] : source.metadata()) metadata.Add({key, value});
  return absl::StrFormat("Model\n%s\nConfiguration\n%s\nMetadata\n%s\nTensors\n%s%s",
                         header.Print("  "), DescribeConfig(source.config()), metadata.Print("  "),
                         DescribeTensors(source), DescribeSkipped(source.skipped()));
}

}  // namespace tandem::loader

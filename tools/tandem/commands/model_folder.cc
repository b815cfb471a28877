#include "tools/tandem/commands/model_folder.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/common/base/text_table.h"
#include "services/loader/formats/open_model.h"
#include "services/loader/store/model_catalog.h"
#include "tools/tandem/commands/answer_json.h"

namespace tandem {
namespace {

struct Entry {
  loader::ModelFile file;
  std::string error;  // why the rest is not known
  uint64_t num_weights = 0;
  std::string dtype;
  uint32_t num_layers = 0, context_len = 0;
};

Entry Describe(const loader::ModelFile& file) {
  Entry entry{.file = file};
  const auto source = loader::OpenModelSource(file.path);
  if (!source.ok()) {
    entry.error = std::string(source.status().message());
    return entry;
  }
  std::array<uint64_t, kNumDTypes> weights{};
  for (const loader::SourceTensor& tensor : (*source)->tensors()) {
    const uint64_t count = tensor.shape.rows * tensor.shape.cols;
    entry.num_weights += count;
    if (tensor.role != WeightRole::kEmbedding) weights[static_cast<size_t>(tensor.dtype)] += count;
  }
  const auto most = std::max_element(weights.begin(), weights.end()) - weights.begin();
  entry.dtype = std::string(Traits(static_cast<DType>(most)).name);
  entry.num_layers = (*source)->config().num_layers;
  entry.context_len = (*source)->config().context_len;
  return entry;
}

std::string AsTable(const std::vector<Entry>& entries) {
  TextTable table({false, false, true, false, true, true, true, false});
  table.Add({"NAME", "FORMAT", "WEIGHTS", "TYPE", "LAYERS", "CONTEXT", "SIZE MiB", ""});
  for (const Entry& entry : entries) {
    const std::string size =
        absl::StrFormat("%.1f", static_cast<double>(entry.file.file_bytes) / (1 << 20));
    if (!entry.error.empty()) {
      table.Add({entry.file.name, entry.file.format, "", "", "", "", size, entry.error});
      continue;
    }
    table.Add({entry.file.name, entry.file.format,
               absl::StrFormat("%.1f M", static_cast<double>(entry.num_weights) / 1e6), entry.dtype,
               absl::StrFormat("%d", entry.num_layers), absl::StrFormat("%d", entry.context_len),
               size, ""});
  }
  return table.Print();
}

std::string AsJson(const std::vector<Entry>& entries) {
  nlohmann::ordered_json models = nlohmann::ordered_json::array();
  for (const Entry& entry : entries) {
    nlohmann::ordered_json model = {{"name", entry.file.name},
                                    {"path", entry.file.path},
                                    {"format", entry.file.format},
                                    {"file_bytes", entry.file.file_bytes}};
    if (entry.error.empty()) {
      model.update({{"weights", entry.num_weights},
                    {"type", entry.dtype},
                    {"num_layers", entry.num_layers},
                    {"context_len", entry.context_len}});
    } else {
      model["error"] = entry.error;
    }
    models.push_back(std::move(model));
  }
  return PrintJson({{"models", models}}, 2);
}

}  // namespace

absl::StatusOr<std::string> DescribeModelFolder(const std::string& folder, bool as_json) {
  TANDEM_ASSIGN_OR_RETURN(const auto catalog, loader::ModelCatalog::Create({folder}));
  std::vector<Entry> entries;
  for (const loader::ModelFile& file : catalog.List()) entries.push_back(Describe(file));
  return as_json ? AsJson(entries) : AsTable(entries);
}

}  // namespace tandem

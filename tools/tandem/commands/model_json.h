// The content of a model's files, as JSON.
#pragma once

#include <nlohmann/json.hpp>

#include "services/loader/source/model_source.h"

namespace tandem {

// The tables of DescribeModelSource, with the whole chat template.
nlohmann::ordered_json ModelSourceAsJson(const loader::ModelSource& source);

}  // namespace tandem

// What is in a model's files, as JSON.
#pragma once

#include <nlohmann/json.hpp>

#include "services/loader/formats/model_source.h"

namespace tandem {

// What DescribeModelSource says in tables, with the whole chat template.
nlohmann::ordered_json ModelSourceAsJson(const loader::ModelSource& source);

}  // namespace tandem

// The content of a model's files, as JSON.
#pragma once

#include <nlohmann/json.hpp>

#include "services/loader/source/model_source.h"
#include "services/loader/vision/vision_source.h"

namespace tandem {

// The tables of DescribeModelSource, with the whole chat template.
nlohmann::ordered_json ModelSourceAsJson(const loader::ModelSource& source);

// The tables of DescribeVisionSource.
nlohmann::ordered_json VisionSourceAsJson(const loader::VisionSource& source);

}  // namespace tandem

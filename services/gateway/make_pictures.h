// How a gateway encodes pictures.
#pragma once

#include <string>

#include "services/gateway/executor/executor.h"
#include "services/gateway/model/served_model.h"

namespace tandem::gateway {

// "tandem-image-decoder" beside this program, else in ../lib/tandem, where it is installed.
std::string DefaultImageDecoder();

// Pictures are decoded by the program of `options` and encoded by the worker with Vision, whose
// plan is loaded when the model is.  `model`: how the model itself runs.
MakePictureEncoder PicturesBy(PictureEncoderOptions options, ExecutorOptions model);

}  // namespace tandem::gateway

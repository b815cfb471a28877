// One picture of the gateway: request in, reply out.
#pragma once

#include "absl/status/status.h"

namespace tandem::image_decoder {

// Waits for a request on `socket`, decodes its picture and sends the reply (decoder_wire.h).  OK
// also for a picture that was refused, and when the other end closes without a request.
// INVALID_ARGUMENT for a request that is malformed, INTERNAL when the system refuses.
absl::Status ServeOnePicture(int socket);

}  // namespace tandem::image_decoder

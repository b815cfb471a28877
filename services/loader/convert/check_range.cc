#include "services/loader/convert/check_range.h"

#include <cmath>

#include "absl/strings/str_format.h"
#include "services/common/base/half.h"

namespace tandem::loader {

absl::Status CheckRange(const std::string& tensor, DType to, std::span<const float> numbers,
                        std::string_view flag) {
  for (const float number : numbers) {
    const bool fits = std::isfinite(number) && (to == DType::kF32 || to == DType::kBf16 ||
                                                (FloatToHalf(number) & 0x7FFFu) < 0x7C00u);
    if (fits) continue;
    if (!std::isfinite(number)) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "tensor '%s' holds %g, which no weight is: the source is damaged, fetch it again", tensor,
          number));
    }
    return absl::InvalidArgumentError(absl::StrFormat(
        "tensor '%s' holds %g, which does not fit %s (numbers up to 65504): %s bf16 or f32 keeps "
        "it",
        tensor, number, std::string(Traits(to).name), std::string(flag)));
  }
  return absl::OkStatus();
}

}  // namespace tandem::loader

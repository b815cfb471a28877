#include "services/common/worker/worker.h"

namespace tandem {

std::string_view ImportPathName(ImportPath path) {
  switch (path) {
    case ImportPath::kNone:
      return "none";
    case ImportPath::kDmabuf:
      return "dmabuf";
    case ImportPath::kHostPointer:
      return "host-pointer";
    case ImportPath::kUserPointer:
      return "user-pointer";
    case ImportPath::kUpload:
      return "upload";
  }
  return "?";
}

}  // namespace tandem

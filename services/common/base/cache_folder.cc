#include "services/common/base/cache_folder.h"

#include <cstdlib>

namespace tandem {

std::string DefaultCacheFolder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0') {
    return std::string(cache) + "/tandem";
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') {
    return std::string(home) + "/.cache/tandem";
  }
  return "";
}

}  // namespace tandem

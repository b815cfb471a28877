// Where programs keep what they can make again.
#pragma once

#include <string>

namespace tandem {

// $XDG_CACHE_HOME/tandem, else ~/.cache/tandem; empty when neither is set.
std::string DefaultCacheFolder();

}  // namespace tandem

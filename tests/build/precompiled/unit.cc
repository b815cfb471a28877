#include <vector>

static std::vector<int> Unit() { return {1}; }
[[maybe_unused]] static auto* const kept = &Unit;

#pragma once
#include <vector>
#ifdef STANDARD_HEADER_ASKS_FOR_THIS
inline constexpr bool kAsked = true;
#endif

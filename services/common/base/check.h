// TANDEM_CHECK(cond): aborts with file, line and the condition when an invariant is broken.
// For mistakes of the program alone; anything a file, peer, device or caller can cause is a Status.
#pragma once

#include <cstdio>
#include <cstdlib>

#define TANDEM_CHECK(cond)                                                          \
  do {                                                                              \
    if (!(cond)) {                                                                  \
      std::fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #cond); \
      std::abort();                                                                 \
    }                                                                               \
  } while (false)

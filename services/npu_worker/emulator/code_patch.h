// Replaces the body of a function that is already loaded.  x86-64 only.
#pragma once

namespace tandem::npu::emulator {

// Writes a jump to `replacement` over the start of the exported function `symbol`.  False, with a
// line on standard error, when the symbol is not loaded or its page cannot be made writable.
// Not thread-safe: nothing may be executing the function.
bool RedirectFunction(const char* symbol, void* replacement);

}  // namespace tandem::npu::emulator

// Files of the packages that are written at build time.
#pragma once

#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <fstream>

namespace tandem::npu::emulator {

// Writes a whole file.  False: it could not, and has said so on stderr.
inline bool WriteFile(const std::filesystem::path& path, const void* bytes, size_t n) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(static_cast<const char*>(bytes), static_cast<std::streamsize>(n));
  file.close();
  if (!file) std::fprintf(stderr, "cannot write %s\n", path.c_str());
  return static_cast<bool>(file);
}

}  // namespace tandem::npu::emulator

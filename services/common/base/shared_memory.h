// Shared memory by anonymous file (memfd) and its mappings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/base/unique_fd.h"

namespace tandem {

// A MAP_SHARED mapping of a file descriptor.  Move-only; unmaps on destruction.
class Mapping {
 public:
  enum class Access { kReadOnly, kReadWrite };

  // Maps `bytes` bytes of `fd` from its start.  INVALID_ARGUMENT when the object is shorter
  // than `bytes` (a longer mapping would fault), INTERNAL when the kernel refuses.
  static absl::StatusOr<Mapping> Map(int fd, size_t bytes, Access access);

  Mapping() = default;
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  std::span<std::byte> bytes() const { return {data_, size_}; }

 private:
  Mapping(std::byte* data, size_t size) : data_(data), size_(size) {}
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Creates a memfd of `bytes` bytes (rounded up to the page size), close-on-exec, sealable.
absl::StatusOr<UniqueFd> CreateSharedMemory(const std::string& name, size_t bytes);

// Forbids growing and shrinking, and further seals.  (No write seal: udmabuf refuses it.)
absl::Status SealSize(int fd);

// A descriptor of the same object opened read-only: mappings through it can never be writable.
absl::StatusOr<UniqueFd> ReopenReadOnly(int fd);

// Size of the object behind `fd`, bytes.
absl::StatusOr<uint64_t> FileSize(int fd);

}  // namespace tandem

// Reading a file's bytes by offset, and parsing little-endian headers out of them.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/base/status_macros.h"
#include "services/common/base/unique_fd.h"

namespace tandem::loader {

// INVALID_ARGUMENT "at byte OFFSET: REASON": how every parser here refuses its input.  Names out of
// the input may be part of the reason: unprintable bytes are escaped, and a long text is cut.
absl::Status FormatError(uint64_t offset, std::string_view reason);
// A status's message, for use within another one.
inline std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }
// The same status with "NAME: " before its message.
absl::Status InFile(std::string_view name, const absl::Status& status);

// Random access to a fixed number of bytes.  Implementations are thread-safe.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Size when opened.
  virtual uint64_t size() const = 0;
  // Fills `out` from `offset`.  OUT_OF_RANGE beyond size(), DATA_LOSS when the bytes have gone.
  virtual absl::Status ReadAt(uint64_t offset, std::span<std::byte> out) const = 0;
};

// Bytes in memory.  Borrowed; must outlive this.
class SpanSource : public ByteSource {
 public:
  explicit SpanSource(std::span<const std::byte> bytes) : bytes_(bytes) {}
  explicit SpanSource(std::string_view text) : bytes_(std::as_bytes(std::span(text))) {}
  uint64_t size() const override { return bytes_.size(); }
  absl::Status ReadAt(uint64_t offset, std::span<std::byte> out) const override;

 private:
  std::span<const std::byte> bytes_;
};

// A regular file, read with pread: a file cut short while open is DATA_LOSS and never a signal.
class FileSource : public ByteSource {
 public:
  // Takes `fd`.  INVALID_ARGUMENT unless it is a regular file.
  static absl::StatusOr<FileSource> FromFd(UniqueFd fd);
  // Follows links: for paths that the operator gave.  NOT_FOUND, PERMISSION_DENIED.
  static absl::StatusOr<FileSource> Open(const std::string& path);

  uint64_t size() const override { return size_; }
  int64_t modified_ns() const { return modified_ns_; }  // since the epoch
  absl::Status ReadAt(uint64_t offset, std::span<std::byte> out) const override;

 private:
  FileSource() = default;
  UniqueFd fd_;
  uint64_t size_ = 0;
  int64_t modified_ns_ = 0;
};

// Whole content of a source of at most `max_bytes` bytes; RESOURCE_EXHAUSTED when it is larger.
absl::StatusOr<std::string> ReadAll(const ByteSource& source, uint64_t max_bytes);

// Sequential little-endian reader with a small buffer.  Single-thread.  Every error names the
// offset and what was being read.
class ByteReader {
 public:
  // Reads at most the first `limit` bytes of `source`.  Borrowed; must outlive this.
  ByteReader(const ByteSource& source, uint64_t limit);

  uint64_t offset() const { return offset_; }
  uint64_t remaining() const { return limit_ - offset_; }

  template <typename T>
  requires std::integral<T> || std::floating_point<T> absl::StatusOr<T> Read(
      std::string_view what) {
    static_assert(std::endian::native == std::endian::little);
    T value;
    TANDEM_RETURN_IF_ERROR(ReadBytes(std::as_writable_bytes(std::span<T, 1>(&value, 1)), what));
    return value;
  }
  absl::Status ReadBytes(std::span<std::byte> out, std::string_view what);
  // `length` bytes; refused before anything is allocated when the source has fewer or when they
  // exceed `max_length`.
  absl::StatusOr<std::string> ReadString(uint64_t length, uint64_t max_length,
                                         std::string_view what);
  // A string with its length before it in 64 bits.
  absl::StatusOr<std::string> ReadSizedString(uint64_t max_length, std::string_view what) {
    TANDEM_ASSIGN_OR_RETURN(const uint64_t length, Read<uint64_t>(what));
    return ReadString(length, max_length, what);
  }

 private:
  const ByteSource& source_;
  uint64_t limit_;
  uint64_t offset_ = 0;
  uint64_t buffer_start_ = 0;
  std::vector<std::byte> buffer_;
};

}  // namespace tandem::loader

#include "services/common/pull/sha256.h"

#include <openssl/evp.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "services/common/base/check.h"

namespace tandem::pull {

absl::StatusOr<std::string> Sha256OfFile(int fd, uint64_t size,
                                         const std::function<bool(uint64_t)>& progress) {
  constexpr size_t kChunk = 1 << 20;
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                        EVP_MD_CTX_free);
  TANDEM_CHECK(context != nullptr && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1);
  std::vector<unsigned char> chunk(kChunk);
  for (uint64_t done = 0; done < size;) {
    const ssize_t got = ::pread(fd, chunk.data(), std::min<uint64_t>(kChunk, size - done),
                                static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      return absl::UnavailableError(
          absl::StrFormat("reading byte %d of %d for the checksum: %s", done, size,
                          got == 0 ? "the file ends there" : std::strerror(errno)));
    }
    TANDEM_CHECK(EVP_DigestUpdate(context.get(), chunk.data(), static_cast<size_t>(got)) == 1);
    done += static_cast<uint64_t>(got);
    const bool due = done % (16 * kChunk) == 0 || done == size;
    if (progress != nullptr && due && !progress(done)) {
      return absl::CancelledError("stopped");
    }
  }
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  TANDEM_CHECK(EVP_DigestFinal_ex(context.get(), digest, &length) == 1);
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<char*>(digest), length));
}

}  // namespace tandem::pull

// A client without an API key.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "services/gateway/http/http_message.h"

namespace tandem::gateway {

// Its requests share what one tenant may have; no key limits them.  Thread-safe.
class AnonymousClient final : public HttpClient {
 public:
  explicit AnonymousClient(std::string tenant) : tenant_(std::move(tenant)) {}
  const std::string& name() const override { return name_; }
  const std::string& tenant() const override { return tenant_; }
  void ChargeTokens(uint64_t /*prompt*/, uint64_t /*completion*/) override {}

 private:
  const std::string name_;
  const std::string tenant_;
};

}  // namespace tandem::gateway

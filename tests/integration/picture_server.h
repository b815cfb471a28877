// `tandem serve` with the reference worker in the GPU worker's place.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "services/common/testing/temporary_directory.h"
#include "tests/integration/cluster.h"
#include "tests/integration/picture_client.h"

namespace tandem::testing {

class PictureServer : public ::testing::Test {
 protected:
  PictureServer();
  void TearDown() override;

  // What Serve starts then: the build's own services, whose GPU may be a software driver; `npu`: a
  // policy.  Otherwise the reference worker is in the GPU worker's place.
  void UseDevices(const std::string& npu);
  // Starts it and waits until requests are answered.
  void Serve(const std::string& model, const std::vector<std::string>& more);
  PictureClient Client() const;
  // Processes of tandem-image-decoder.
  std::vector<pid_t> Decoders() const;
  // In a folder of the test's own.
  std::string Path(const std::string& name) const { return folder_.path() + "/" + name; }

 private:
  std::string GatewayLog() const;
  uint16_t Port() const;  // of HTTP; 0: it is not known yet

  const TemporaryDirectory folder_;
  std::string model_;
  std::string program_ = Path("bin/tandem"), npu_ = "off";
  std::unique_ptr<ChildProcess> serve_;
};

}  // namespace tandem::testing

#include "services/npu_worker/package/declaration.h"

#include <gtest/gtest.h>

#include <fstream>

#include "services/common/testing/status_matchers.h"
#include "services/common/testing/temporary_directory.h"

namespace tandem::npu {
namespace {

using Json = nlohmann::ordered_json;

TEST(DeclarationTest, NamesEveryCoreAndTheShimsChannelsOfControlCode) {
  for (const CatalogueDevice& device : CatalogueDevices()) {
    const auto declaration = DeclareOperators(device);
    ASSERT_OK(declaration.status());
    const Json& operators = declaration->at("operators");
    ASSERT_EQ(operators.size(), CatalogueOperators().size());
    for (const Json& op : operators) {
      const std::string name = op.at("entry").at("name");
      EXPECT_EQ(op.at("cores").size(), 4 * device.array.num_columns) << name;
      const bool is_gemm = op.at("entry").at("control") == "gemm";
      // Activations come to four columns alone.
      const size_t with_first = is_gemm ? 4 : device.array.num_columns;
      EXPECT_EQ(op.at("shim").size(), 2 * device.array.num_columns + with_first) << name;
      for (const Json& channel : op.at("shim")) {
        EXPECT_EQ(channel.at("token"), channel.at("direction") == "from_tile") << name;
        EXPECT_FALSE(channel.at("arguments").empty()) << name;
      }
    }
  }
}

TEST(DeclarationTest, ThePackageReaderAcceptsItsEntries) {
  for (const CatalogueDevice& device : CatalogueDevices()) {
    const auto declaration = DeclareOperators(device);
    ASSERT_OK(declaration.status());
    Json package = {{"format", "tandem-npu-package"},
                    {"version", 3},
                    {"emulated", false},
                    {"operators", Json::array()}};
    for (const Json& op : declaration->at("operators")) {
      package["operators"].push_back(op.at("entry"));
    }
    const TemporaryDirectory folder;
    std::string xclbin(512, '\0');
    xclbin.replace(0, 7, "xclbin2");
    xclbin[305] = 2;  // 512 bytes
    std::ofstream(folder.path() + "/operators.xclbin") << xclbin;
    std::ofstream(folder.path() + "/package.json") << package.dump();
    const auto read = OperatorPackage::Read(folder.path());
    ASSERT_OK(read.status());
    EXPECT_EQ(read->operators.size(), CatalogueOperators().size());
    EXPECT_EQ(read->HeadDims(), (std::vector<uint32_t>{64, 128, 256}));
    EXPECT_EQ(read->GemmFormats().size(), 3u);
    EXPECT_NE(read->FindRows(), nullptr);
  }
}

}  // namespace
}  // namespace tandem::npu

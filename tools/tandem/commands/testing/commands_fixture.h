// The client commands, as programs, against a gateway in this process.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/tandem/commands/testing/child.h"
#include "tools/tandem/commands/testing/fake_gateway.h"

namespace tandem {

class CommandsTest : public testing::Test {
 protected:
  struct Result {
    int code = 0;
    std::string output;
    std::string errors;
  };
  std::vector<std::string> WithAddress(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin() + 1, {"--address", gateway_.address()});
    return arguments;
  }
  Result Run(std::vector<std::string> arguments, std::string_view input = "") {
    Child child(WithAddress(std::move(arguments)));
    child.Write(input);
    child.CloseInput();
    const int code = child.Wait();
    return {code, child.output(), child.errors()};
  }

  FakeGateway gateway_;
};

}  // namespace tandem

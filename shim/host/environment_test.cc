#include "shim/host/environment.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <string>

namespace fineserve::shim {
namespace {

TEST(EngineName, IsTheChosenOneElseCommAndPid) {
  char name[abi::kNameBytes];
  unsetenv("FINESERVE_ENGINE");
  EngineName(name);
  EXPECT_EQ(std::string(name), "shim_host_test-" + std::to_string(getpid()));
  setenv("FINESERVE_ENGINE", "llama-0", 1);
  EngineName(name);
  EXPECT_STREQ(name, "llama-0");
  unsetenv("FINESERVE_ENGINE");
}

}  // namespace
}  // namespace fineserve::shim

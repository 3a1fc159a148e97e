#include "tests/integration/page/browser.h"

#include <gtest/gtest.h>

namespace fineserve::integration {

Browser::Browser() : process_({"python3", FINESERVE_BROWSER}, {}) {
  EXPECT_EQ(process_.ReadLine(), "ready") << process_.Stderr();
}

Browser::~Browser() {
  process_.CloseStdin();
  process_.Wait();
}

std::string Browser::Command(const std::string& line) {
  std::string answer = process_.Ask(line);
  EXPECT_EQ(answer.rfind("{\"error\":", 0), std::string::npos)
      << line << ": " << answer;
  EXPECT_NE(answer, "") << line << ": " << process_.Stderr();
  return answer;
}

bool Browser::Becomes(const std::string& expression) {
  return Eventually([&] {
    return Eval("Boolean(" + expression + ")") == "true" ||
           ::testing::Test::HasFailure();
  });
}

void Browser::Resize(int width, int height) {
  Command("size " + std::to_string(width) + " " + std::to_string(height));
}

}  // namespace fineserve::integration

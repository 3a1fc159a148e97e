#ifndef TOOLS_UP_FOLDER_FIXTURE_H_
#define TOOLS_UP_FOLDER_FIXTURE_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

namespace fineserve::fsctl {

// A test with a separate empty folder, mode 0700, as its runtime folder.
class FolderTest : public ::testing::Test {
 protected:
  FolderTest() {
    char folder[] = "/tmp/fineserve-launch-XXXXXX";
    EXPECT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
  }
  ~FolderTest() override { std::filesystem::remove_all(folder_); }

  const std::string& folder() const { return folder_; }

  // Checks `condition` until it holds; returns false if it does not hold within
  // a minute, since a busy machine is only slow.
  template <typename Condition>
  static bool Eventually(Condition condition) {
    using Clock = std::chrono::steady_clock;
    const auto deadline = Clock::now() + std::chrono::minutes(1);
    while (!condition()) {
      if (Clock::now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return true;
  }

 private:
  std::string folder_;
};

}  // namespace fineserve::fsctl

#endif  // TOOLS_UP_FOLDER_FIXTURE_H_

#include "tools/up/proxies.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <memory>
#include <thread>

#include "daemon/fleet/door/door.h"
#include "tools/up/folder_fixture.h"

namespace fineserve::fsctl {
namespace {

class ProxiesTest : public FolderTest {
 protected:
  ~ProxiesTest() override {
    stop_ = true;
    for (std::thread& thread : turning_) thread.join();
  }
  // Opens a process's door. `error`: its answer to everything.
  void Open(const std::string& name, const std::string& error) {
    auto door = apply::Door::Open(folder(), name, [=](const auto&) {
      apply::Answer answer;
      answer.process = name;
      answer.error = error;
      return answer;
    });
    ASSERT_TRUE(door.ok()) << door.status();
    doors_.push_back(*std::move(door));
  }
  void Turn(apply::Door* door) {
    turning_.emplace_back([this, door] {
      while (!stop_) {
        pollfd ready = {door->descriptor(), POLLIN, 0};
        if (poll(&ready, 1, 10) > 0) door->Turn();
      }
    });
  }

  std::vector<std::unique_ptr<apply::Door>> doors_;
  std::vector<std::thread> turning_;
  std::atomic<bool> stop_{false};
};

TEST_F(ProxiesTest, TheFleetsProxiesAnswerAndASilentOneCounts) {
  Open("proxy-1", "");
  Open("proxy-2", "it follows another fleet file");
  Open("GPU-1", "");
  for (const auto& door : doors_) Turn(door.get());
  Open("proxy-3", "");  // its process is stopped
  const auto answers = ProxiesOf(folder())(apply::Question());
  ASSERT_EQ(answers.size(), 2u);
  ASSERT_TRUE(answers[0].has_value());
  EXPECT_EQ(answers[0]->process, "proxy-1");
  EXPECT_FALSE(answers[1].has_value());
}

TEST_F(ProxiesTest, AProxyThatHasGoneIsLeftOut) {
  Open("proxy-1", "");
  doors_.clear();
  EXPECT_TRUE(ProxiesOf(folder())(apply::Question()).empty());
}

}  // namespace
}  // namespace fineserve::fsctl

#ifndef SHIM_LINK_DAEMON_LINK_FIXTURE_H_
#define SHIM_LINK_DAEMON_LINK_FIXTURE_H_

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>

#include "shim/link/daemon_link.h"
#include "shim/testdata/fake_daemon.h"
#include "shim/testdata/scoreboard_copy.h"

namespace fineserve::shim {

inline constexpr uint8_t kGpu[16] = {1, 2, 3};
inline constexpr uint8_t kOtherGpu[16] = {9};

// A link and, after StartDaemon, its daemon, in a temporary folder.
class DaemonLinkTest : public testing::Test {
 protected:
  void SetUp() override {
    setenv("FINESERVE_RUNTIME_DIR", folder_.path().c_str(), 1);
    link_.set_timeouts(kPatient);
  }
  void TearDown() override {
    link_.AbandonInChild();
    scoreboard_.AbandonInChild();
    unsetenv("FINESERVE_RUNTIME_DIR");
  }

  void StartDaemon(const FakeDaemon::Options& options = {}) {
    daemon_ = std::make_unique<FakeDaemon>(folder_.path(), kGpu, options);
  }
  // Joins, and returns the text that was written to standard error.
  std::string Join(bool reconnect = false) {
    testing::internal::CaptureStderr();
    link_.Join(kGpu, reconnect);
    return testing::internal::GetCapturedStderr();
  }
  ScoreboardCopy Scoreboard() const {
    return CopyScoreboard(MapScoreboardOf(getpid()));
  }

  TemporaryFolder folder_;
  std::unique_ptr<FakeDaemon> daemon_;
  ScoreboardWriter scoreboard_;
  DeclaredSizes declared_;
  RuleMatcher rules_;
  DaemonLink link_{&scoreboard_, &declared_, &rules_};
};

}  // namespace fineserve::shim

#endif  // SHIM_LINK_DAEMON_LINK_FIXTURE_H_

#include "daemon/fineserved/backing/mps_work.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace fineserve::backing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr pid_t kServer = 100;
constexpr pid_t kClient = 200;
constexpr int kManyLists = 200;

class MpsWorkTest : public ::testing::Test {
 protected:
  std::vector<pid_t> StillAtWork(const DeviceProcesses& listed) {
    work_.Saw(listed);
    return work_.StillAtWork(listed, {kClient});
  }

  bool ends_ = false;  // what the server answers
  std::vector<std::pair<pid_t, pid_t>> asked_;
  MpsWork work_{[this](pid_t server, pid_t client) {
    asked_.emplace_back(server, client);
    return ends_;
  }};
  const DeviceProcesses without_server_ = {{}, {}, {}};
  const DeviceProcesses without_client_ = {{kServer}, {}, {kServer}};
};

TEST_F(MpsWorkTest, ClientIsAtWorkUntilTheServerHasEndedItsWork) {
  work_.Saw({{kServer}, {kClient}, {kServer}});
  for (int i = 0; i < kManyLists; ++i) {
    ASSERT_THAT(StillAtWork(without_client_), ElementsAre(kClient));
  }
  EXPECT_THAT(asked_.front(), Pair(kServer, kClient));
  EXPECT_LT(asked_.size(), kManyLists / 10u) << "not at every list";
  ends_ = true;
  bool ended = false;
  for (int i = 0; i < kManyLists && !ended; ++i) {
    ended = StillAtWork(without_client_).empty();
  }
  EXPECT_TRUE(ended);
  const size_t asked = asked_.size();
  EXPECT_THAT(StillAtWork(without_client_), IsEmpty());
  EXPECT_EQ(asked_.size(), asked);
}

TEST_F(MpsWorkTest, ServersEndIsItsClientsEndWhateverServerComesNext) {
  work_.Saw({{kServer}, {kClient}, {kServer}});
  EXPECT_THAT(StillAtWork(without_client_), ElementsAre(kClient));
  EXPECT_THAT(StillAtWork({{kServer + 1}, {}, {kServer + 1}}), IsEmpty());
}

TEST_F(MpsWorkTest, ProcessThatWasListedByItselfIsNoClient) {
  work_.Saw({{kServer, kClient}, {}, {kServer}});
  EXPECT_THAT(StillAtWork(without_client_), IsEmpty());
  EXPECT_THAT(asked_, IsEmpty());
}

TEST_F(MpsWorkTest, UnknownProcessIsAClientIfThereIsAServer) {
  EXPECT_THAT(StillAtWork(without_client_), ElementsAre(kClient));
}

TEST_F(MpsWorkTest, WithoutAServerNothingGoesOn) {
  EXPECT_THAT(StillAtWork(without_server_), IsEmpty());
}

// A pid is used again.
TEST_F(MpsWorkTest, LaterProcessIsAskedForAgain) {
  ends_ = true;
  work_.Saw({{kServer}, {kClient}, {kServer}});
  EXPECT_THAT(StillAtWork(without_client_), IsEmpty());
  ends_ = false;
  work_.Saw({{kServer}, {kClient}, {kServer}});
  EXPECT_THAT(StillAtWork(without_client_), ElementsAre(kClient));
}

}  // namespace
}  // namespace fineserve::backing

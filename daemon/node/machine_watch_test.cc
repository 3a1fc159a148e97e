#include "daemon/node/machine_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fineserve::node {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint64_t kLost = 5;
constexpr uint64_t kNever = 60;
constexpr uint64_t kLeaseNs = 7;

cluster::MachineRecord Record(const std::string& name,
                              const std::string& instance = "i") {
  return {name, "10.0.0.1", instance, "", {}};
}

class MachineWatchTest : public ::testing::Test {
 protected:
  ManualClock clock_;
  MachineWatch watch_{{"a", "b"}, kLost, kNever, kLeaseNs, &clock_};
};

TEST_F(MachineWatchTest, MachineThatWasMissingLongEnoughIsLost) {
  watch_.Saw({Record("a"), Record("b")}, {});
  clock_.AdvanceNs(100);  // etcd could not be asked: no machine was seen
                          // missing
  EXPECT_THAT(watch_.Lost(), IsEmpty());
  watch_.Saw({Record("a")}, {});
  clock_.AdvanceNs(kLost - 1);
  EXPECT_THAT(watch_.Lost(), IsEmpty());
  EXPECT_FALSE(watch_.All()[1].is_alive);
  clock_.AdvanceNs(1);
  EXPECT_THAT(watch_.Lost(), ElementsAre("b"));
  watch_.Saw({Record("a"), Record("b")}, {});
  EXPECT_THAT(watch_.Lost(), IsEmpty());
  EXPECT_TRUE(watch_.All()[1].is_alive);
}

TEST_F(MachineWatchTest, MachineThatNeverCameIsGivenMoreTime) {
  watch_.Saw({Record("a")}, {});
  clock_.AdvanceNs(kNever - 1);
  EXPECT_THAT(watch_.Lost(), IsEmpty());
  clock_.AdvanceNs(1);
  EXPECT_THAT(watch_.Lost(), ElementsAre("b"));
}

TEST_F(MachineWatchTest, MachineIsSilentSinceItsLeaseWasRenewed) {
  clock_.AdvanceNs(100);
  const uint64_t began = clock_.NowNs();
  watch_.Saw({Record("a")}, {});
  EXPECT_EQ(watch_.All()[1].silent_ns, began) << "it was never seen";
  watch_.Saw({Record("a"), Record("b")}, {});
  clock_.AdvanceNs(10);
  watch_.Saw({}, {"b"});
  EXPECT_EQ(watch_.All()[0].silent_ns, clock_.NowNs() - kLeaseNs);
  EXPECT_EQ(watch_.All()[1].silent_ns, clock_.NowNs()) << "it has ended";
  watch_.Saw({Record("a")}, {});
  EXPECT_EQ(watch_.All()[0].silent_ns, 0u);
}

TEST_F(MachineWatchTest, MachinesOfNoFleetFileAreNoMachines) {
  watch_.Saw({Record("a"), Record("b"), Record("stranger")}, {});
  EXPECT_EQ(watch_.All().size(), 2u);
}

TEST_F(MachineWatchTest, ASecondNodeOfOneNameIsNoticed) {
  watch_.Saw({Record("a", "i")}, {});
  EXPECT_FALSE(watch_.HasDouble("a", "i"));
  watch_.Saw({Record("a", "j")}, {});
  EXPECT_TRUE(watch_.HasDouble("a", "i"));
}

}  // namespace
}  // namespace fineserve::node

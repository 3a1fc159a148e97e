#include "daemon/fineserved/backing/device_thread.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <cstddef>
#include <deque>
#include <future>
#include <memory>
#include <set>

#include "daemon/fineserved/backing/backing_fixture.h"
#include "daemon/fineserved/backing/sim_backing.h"

namespace fineserve::backing {
namespace {

// Stops a thread until the gate is opened.
class Gate {
 public:
  void Pass() {
    reached_.set_value();
    opened_.get_future().wait();
  }
  void WaitUntilReached() { reached_.get_future().wait(); }
  void Open() { opened_.set_value(); }

 private:
  std::promise<void> reached_, opened_;
};

// Stops the thread that moves the item for the n-th time: Put makes the first
// move, TakeAll the second.
struct Item {
  Item(Gate* g, int n) : gate(g), moves(n) {}
  Item(Item&& from) : gate(from.gate), moves(from.moves - 1) {
    if (moves == 0) gate->Pass();
  }

  Gate* gate;
  int moves;
};
constexpr int kNever = 100;

TEST(MailboxTest, ItemsAreTakenOldestFirst) {
  Mailbox<int> box;
  for (int i = 0; i < 3; ++i) box.Put(int{i});
  EXPECT_EQ(box.TakeAll(), (std::deque<int>{0, 1, 2}));
  EXPECT_TRUE(box.TakeAll().empty());
}

// A thread that is descheduled in the middle of a call holds up no other
// thread, unlike with a lock.
class StoppedThreadTest : public testing::Test {
 protected:
  // True if `call` ends while another thread is held at the gate in `stopping`.
  template <typename Call, typename Stopping>
  bool Ends(Call call, Stopping stopping) {
    auto stopped = std::async(std::launch::async, stopping);
    gate_.WaitUntilReached();
    auto caller = std::async(std::launch::async, call);
    const bool ended =
        caller.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
    gate_.Open();
    stopped.wait();
    return ended;
  }

  Mailbox<Item> box_;
  Gate gate_;
};

TEST_F(StoppedThreadTest, TakerDoesNotWaitForAGiver) {
  size_t taken = 0;
  box_.Put({&gate_, kNever});
  EXPECT_TRUE(Ends([&] { taken = box_.TakeAll().size(); },
                   [&] {
                     box_.Put({&gate_, 1});
                   }));
  EXPECT_EQ(taken, 1u);
  EXPECT_EQ(box_.TakeAll().size(), 1u);
}

TEST_F(StoppedThreadTest, GiverDoesNotWaitForATaker) {
  box_.Put({&gate_, 2});
  EXPECT_TRUE(Ends(
      [&] {
        box_.Put({&gate_, kNever});
      },
      [&] { box_.TakeAll(); }));
  EXPECT_EQ(box_.TakeAll().size(), 1u);
}

TEST_F(StoppedThreadTest, GiverDoesNotWaitForAnother) {
  EXPECT_TRUE(Ends(
      [&] {
        box_.Put({&gate_, kNever});
      },
      [&] {
        box_.Put({&gate_, 1});
      }));
  EXPECT_EQ(box_.TakeAll().size(), 2u);
}

using slab::SlabId;

// A device whose calls wait until the test lets them go on.
class SlowBacking final : public Backing {
 public:
  const slab::PoolGeometry& geometry() const override { return kGeometry; }
  absl::Status CreateSlab(SlabId slab) override {
    driver_.get_future().wait();
    return sim_.CreateSlab(slab);
  }
  void DestroySlab(SlabId slab) override { sim_.DestroySlab(slab); }
  absl::StatusOr<driver::Descriptor> Export(uint32_t index) override {
    return sim_.Export(index);
  }
  absl::Status StartZero(SlabId slab) override { return sim_.StartZero(slab); }
  absl::StatusOr<std::vector<SlabId>> TakeZeroed() override {
    return sim_.TakeZeroed();
  }
  absl::StatusOr<uint64_t> FreeBytes() override { return sim_.FreeBytes(); }
  absl::StatusOr<std::vector<pid_t>> DevicePids(
      const std::vector<pid_t>& /*awaited*/) override {
    nvml_.get_future().wait();
    return std::vector<pid_t>{1};
  }

  SimBacking& sim() { return sim_; }
  void LetDriverGoOn() { driver_.set_value(); }
  void LetNvmlGoOn() { nvml_.set_value(); }

 private:
  SimBacking sim_ = *SimBacking::Create(kGeometry, 4);
  std::promise<void> driver_;  // each is waited for once
  std::promise<void> nvml_;
};

class DeviceThreadTest : public ::testing::Test {
 protected:
  // Waits until something has been done, and returns it.
  std::vector<Completion> Await() {
    pollfd ready = {thread_->descriptor(), POLLIN, 0};
    EXPECT_EQ(poll(&ready, 1, 60'000), 1);
    return thread_->Take();
  }
  template <typename T>
  T AwaitOne() {
    std::vector<Completion> done = Await();
    EXPECT_EQ(done.size(), 1u);
    EXPECT_TRUE(absl::holds_alternative<T>(done.at(0)));
    return absl::get<T>(std::move(done.at(0)));
  }

  SlowBacking backing_;
  std::unique_ptr<DeviceThread> thread_ =
      std::make_unique<DeviceThread>(&backing_);
};

TEST_F(DeviceThreadTest, NoCallWaitsForTheDriver) {
  thread_->Make(SlabId{5});
  thread_->Export(7, {0, 1, 2});
  EXPECT_TRUE(thread_->Take().empty());
  backing_.LetDriverGoOn();
  std::vector<Completion> done = Await();
  while (done.size() < 2) {
    for (Completion& more : Await()) done.push_back(std::move(more));
  }
  EXPECT_TRUE(absl::get<Made>(done[0]).status.ok());
  EXPECT_EQ(absl::get<Exported>(done[1]).ticket, 7u);
  EXPECT_EQ(absl::get<Exported>(done[1]).granules.size(), 3u);
}

TEST_F(DeviceThreadTest, DriverIsNotHeldUpByNvml) {
  thread_->ListProcesses({});
  thread_->Export(7, {0});
  EXPECT_EQ(AwaitOne<Exported>().ticket, 7u);
  backing_.LetNvmlGoOn();
  EXPECT_EQ(AwaitOne<Listed>().pids->size(), 1u);
}

TEST_F(DeviceThreadTest, FillsCompleteWithoutAnotherCall) {
  std::set<SlabId> filled;
  thread_->Fill(SlabId{0});
  thread_->Fill(SlabId{1});
  while (filled.size() < 2) {
    for (const Completion& done : Await()) {
      EXPECT_TRUE(absl::get<Zeroed>(done).status.ok());
      filled.insert(absl::get<Zeroed>(done).slab);
    }
  }
}

TEST_F(DeviceThreadTest, FillThatCannotStartIsReported) {
  backing_.sim().set_zeroing_fails(true);
  thread_->Fill(SlabId{3});
  const auto failed = AwaitOne<Zeroed>();
  EXPECT_EQ(failed.slab, SlabId{3});
  EXPECT_FALSE(failed.status.ok());
}

TEST_F(DeviceThreadTest, LostDeviceIsReportedOnce) {
  backing_.sim().set_device_lost(absl::InternalError("it fell off the bus"));
  thread_->Export(7, {0});
  const std::vector<Completion> done = Await();
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(absl::get<Lost>(done[1]).why.message(), "it fell off the bus");
}

TEST_F(DeviceThreadTest, EndsWithCallsThatHaveNotBegun) {
  for (int i = 0; i < 1000; ++i) thread_->Fill(SlabId{0});
  thread_.reset();
}

TEST_F(DeviceThreadTest, GranulesUpToTheFirstFailureAreExported) {
  thread_->Export(7, {0, 1, 9});  // the last has no memory
  const auto exported = AwaitOne<Exported>();
  EXPECT_EQ(exported.granules.size(), 2u);
  EXPECT_FALSE(exported.status.ok());
}

}  // namespace

}  // namespace fineserve::backing

// fsctl top (and slabs) on a real daemon and real engines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <utility>

#include "daemon/contract/abi/messages.h"
#include "daemon/contract/abi/transport.h"
#include "daemon/contract/abi/view_scoreboard.h"
#include "kernels/driver/descriptor.h"
#include "tests/integration/site.h"
#include "tests/integration/top/terminal.h"

namespace fineserve::integration {
namespace {

// The test's process, which plays an engine with a view. It speaks only the
// protocol: it maps no memory, and reports the blocks that the test sets.
class ViewMember {
 public:
  // Joins the daemon at the other end of `socket` as `name`, registers blocks
  // of 16 tokens in one plane and activates, wanting `wanted` slabs. Fails the
  // test if it cannot.
  ViewMember(driver::Descriptor socket, const std::string& name,
             uint64_t page_bytes, uint32_t wanted);
  ViewMember(const ViewMember&) = delete;
  ViewMember& operator=(const ViewMember&) = delete;
  ~ViewMember();

  void SetUsed(uint32_t slab, uint32_t blocks);
  abi::ViewScoreboardHeader* scoreboard() { return scoreboard_; }

 private:
  template <typename Answer, typename Question>
  driver::Descriptor Ask(const Question& question);

  driver::Descriptor socket_;
  driver::Descriptor scoreboard_descriptor_;
  size_t scoreboard_bytes_ = 0;
  abi::ViewScoreboardHeader* scoreboard_ = nullptr;
};

// Asks the daemon, and returns the last descriptor of its answer, if it has
// any.
template <typename Answer, typename Question>
driver::Descriptor ViewMember::Ask(const Question& question) {
  Answer answer;
  abi::Received received;
  EXPECT_EQ(abi::Send(socket_.get(), question), 0);
  EXPECT_EQ(received.ReceiveFrom(socket_.get()), 0);
  EXPECT_TRUE(received.As(&answer)) << "refused";
  const uint32_t count = received.descriptor_count();
  return driver::Descriptor(count == 0 ? -1
                                       : received.TakeDescriptor(count - 1));
}

ViewMember::ViewMember(driver::Descriptor socket, const std::string& name,
                       uint64_t page_bytes, uint32_t wanted)
    : socket_(std::move(socket)) {
  auto hello = abi::MakeMessage<abi::Hello>(1);
  hello.role = abi::Role::kMember;
  hello.pid = static_cast<uint32_t>(getpid());
  abi::CopyText(hello.engine_name, name.c_str());
  Ask<abi::Welcome>(hello);
  auto view = abi::MakeMessage<abi::ViewRequest>(2);
  view.mode = abi::ViewMode::kView;
  view.planes = 1;
  view.page_bytes = page_bytes;
  view.block_tokens = 16;
  scoreboard_descriptor_ = Ask<abi::ViewAnswer>(view);
  struct stat st = {};
  EXPECT_EQ(fstat(scoreboard_descriptor_.get(), &st), 0);
  scoreboard_bytes_ = static_cast<size_t>(st.st_size);
  void* scoreboard = mmap(nullptr, scoreboard_bytes_, PROT_READ | PROT_WRITE,
                          MAP_SHARED, scoreboard_descriptor_.get(), 0);
  if (scoreboard == MAP_FAILED) abort();
  scoreboard_ = static_cast<abi::ViewScoreboardHeader*>(scoreboard);
  auto activate = abi::MakeMessage<abi::ActivateRequest>(3);
  activate.slabs = scoreboard_->slab_count;
  activate.wanted = wanted;
  Ask<abi::ActivateDone>(activate);
}

ViewMember::~ViewMember() {
  if (scoreboard_ != nullptr) munmap(scoreboard_, scoreboard_bytes_);
}

void ViewMember::SetUsed(uint32_t slab, uint32_t blocks) {
  auto* used = reinterpret_cast<uint32_t*>(scoreboard_ + 1);
  __atomic_store_n(&used[slab + 1], blocks, __ATOMIC_RELAXED);
}

using abi::SlabState;
using ::testing::HasSubstr;

// Sequence that makes xterm show the screen that was there before.
constexpr char kLeaveScreen[] = "\x1b[?1049l";

class TopTest : public Site {
 protected:
  TopTest() {
    Set("TERM", "xterm");
    Set("LC_ALL", "C.UTF-8");
  }

  std::vector<uint32_t> PartialSlabs() {
    std::vector<uint32_t> partial;
    uint32_t number = 0;
    for (const abi::SlabSnapshot& slab : Table().slabs) {
      if (slab.word.state == SlabState::kPartial) partial.push_back(number);
      ++number;
    }
    return partial;
  }
};

// Those that need a screen.
class TopScreenTest : public TopTest {
 protected:
  void SetUp() override {
    if (!Terminal::IsAvailable()) {
      GTEST_SKIP() << "no pseudo-terminals; mount devpts on /dev/pts";
    }
  }

  std::unique_ptr<Terminal> StartTop(int rows, int columns) {
    auto top = std::make_unique<Terminal>(
        std::vector<std::string>{Program("fsctl"), "top", "--interval", "0.1"},
        environment(), rows, columns);
    EXPECT_TRUE(top->Shows("ENGINE"));
    EXPECT_FALSE(top->IsRestored());
    return top;
  }
};

TEST_F(TopTest, OnceShowsEnginesWithTheirSlabs) {
  const auto daemon = StartDaemon();
  const auto engine = StartEngine("8MiB");
  const Finished top = Fsctl({"top", "--once", "--interval", "0.1"});
  EXPECT_EQ(top.code, 0) << top.err;
  EXPECT_THAT(top.out, HasSubstr("pool    64 MiB in 16 slabs of 4 MiB on "));
  const std::string pid = std::to_string(engine->pid());
  EXPECT_THAT(top.out, HasSubstr("stock_engine-" + pid + "  " + pid));
  EXPECT_THAT(top.out, HasSubstr("# full 4"));
  EXPECT_THAT(top.out, HasSubstr("leases granted 0.0/s"));
}

TEST_F(TopTest, OnceShowsWhatAnEngineSaysOfTheBlocksOfItsView) {
  const auto daemon = StartDaemon();
  // Slabs of 4 MiB: 64 blocks each.
  ViewMember member(Connect(), "viewer", 64 << 10, 3);
  ASSERT_TRUE(Eventually([&] { return SlabsIn(SlabState::kPartial) == 3; }));
  const std::vector<uint32_t> leased = PartialSlabs();
  member.SetUsed(leased[0], 64);
  member.SetUsed(leased[1], 16);
  member.scoreboard()->allocated_blocks = 500;
  member.scoreboard()->failed_allocations = 2;
  const Finished top = Fsctl({"top", "--once", "--interval", "0", "--json"});
  ASSERT_EQ(top.code, 0) << top.err;
  const std::string engine = JsonAt(top.out, "/engines/0");
  EXPECT_EQ(JsonText(engine, "/name"), "viewer");
  EXPECT_EQ(JsonInt(engine, "/leased"), 3);
  EXPECT_EQ(JsonInt(engine, "/allocated_blocks"), 500);
  EXPECT_EQ(JsonInt(engine, "/view/blocks/used_blocks"), 80);
  EXPECT_EQ(JsonInt(engine, "/view/blocks/stranded_blocks"), 48);
  const std::string text = Fsctl({"top", "--once", "--interval", "0"}).out;
  EXPECT_THAT(text, HasSubstr("1×64 KiB/16"));
  EXPECT_THAT(text, HasSubstr("80/192     42 %  3 MiB"));
  const Finished slabs = Fsctl({"slabs", "--all", "--by", "density"});
  EXPECT_THAT(slabs.out, HasSubstr("64/64 100 %"));
  EXPECT_THAT(slabs.out, HasSubstr("48 in 1 partly used slab (3 MiB lost)"));
}

TEST_F(TopTest, OnceReadsThroughAnEngineWhenTheDaemonIsDead) {
  const auto daemon = StartDaemon();
  const auto engine = StartEngine("8MiB");
  daemon->EndBy(SIGKILL);
  const Finished top = Fsctl({"top", "--once", "--interval", "0.1"});
  EXPECT_EQ(top.code, 0) << top.err;
  EXPECT_THAT(top.out, HasSubstr("is dead; read through pid " +
                                 std::to_string(engine->pid())));
  EXPECT_THAT(top.out, HasSubstr("# full 4"));
  // Commands that need a daemon fail.
  const Finished models = Fsctl({"models"});
  EXPECT_EQ(models.code, 3);
  EXPECT_THAT(models.err, HasSubstr("is dead; start fineserved again"));
}

TEST_F(TopTest, OnceSaysWhatQuarantinedSlabsWaitFor) {
  if (!OnEmulatedGpu()) {
    GTEST_SKIP() << "only the emulated device lingers to order";
  }
  const auto daemon = StartDaemon();
  const auto engine =
      StartEngine("16MiB", {}, {{"EMUCUDA_LINGER_MS", kUntilEndLingering}});
  ASSERT_THAT(engine->Ask("queue"), HasSubstr("ok queued"));
  engine->EndBy(SIGKILL);
  ASSERT_TRUE(
      Eventually([&] { return SlabsIn(SlabState::kQuarantined) == 8; }));
  EXPECT_THAT(Fsctl({"top", "--once", "--interval", "0"}).out,
              HasSubstr("waiting for the driver to stop listing the engine's"));
}

TEST_F(TopScreenTest, WithoutADaemonItExitsWith3AndTouchesNoTerminal) {
  Terminal top({Program("fsctl"), "top"}, environment(), 24, 80);
  EXPECT_EQ(top.Wait(), 3);
  EXPECT_TRUE(top.IsRestored());
  EXPECT_THAT(top.Rest(), HasSubstr("no fineserved is running"));
}

TEST_F(TopTest, OnNoTerminalItNamesOnce) {
  const auto daemon = StartDaemon();
  const Finished top = Fsctl({"top"});
  EXPECT_EQ(top.code, 2);
  EXPECT_THAT(top.err, HasSubstr("fsctl top --once"));
}

TEST_F(TopScreenTest, ItFollowsThePoolTheTerminalsSizeAndKeysAndLeavesNoTrace) {
  const auto daemon = StartDaemon();
  const auto top = StartTop(30, 160);
  const auto engine = StartEngine("8MiB");
  EXPECT_TRUE(top->Shows("stock_engine-"));
  top->Type("s");
  EXPECT_TRUE(top->Shows("density)"));
  top->Type("?");
  EXPECT_TRUE(top->Shows("another order of engines"));
  top->Type("x");
  EXPECT_TRUE(top->Shows("? help"));
  top->Resize(2, 20);
  EXPECT_TRUE(top->Shows("more"));
  for (const auto& [rows, columns] : {std::pair{1, 1}, {2, 3}, {1, 300}}) {
    top->Resize(rows, columns);
  }
  top->Resize(40, 200);
  EXPECT_TRUE(top->Shows("MISSED"));
  top->Type("ä\x1b[A");  // keys that mean nothing
  top->Type("q");
  EXPECT_EQ(top->Wait(), 0);
  EXPECT_TRUE(top->IsRestored());
  EXPECT_THAT(top->Rest(), HasSubstr(kLeaveScreen));
}

TEST_F(TopScreenTest, SignalsEndItWithTheTerminalRestored) {
  const auto daemon = StartDaemon();
  for (const int signal : {SIGTERM, SIGHUP, SIGINT}) {
    const auto top = StartTop(24, 80);
    top->Signal(signal);
    // Ctrl-C is how people quit, so it is no failure. The other signals were
    // sent to end fsctl top.
    EXPECT_EQ(top->Wait(), signal == SIGINT ? 0 : -signal);
    EXPECT_TRUE(top->IsRestored());
    EXPECT_THAT(top->Rest(), HasSubstr(kLeaveScreen));
  }
}

TEST_F(TopScreenTest, ItEndsWithItsTerminal) {
  const auto daemon = StartDaemon();
  const auto top = StartTop(24, 80);
  top->HangUp();
  top->Wait();
}

TEST_F(TopScreenTest,
       ItSaysWhenThereIsNothingToSeeAnyMoreAndFindsTheNextDaemon) {
  auto daemon = StartDaemon();
  const auto top = StartTop(24, 100);
  daemon->EndBy(SIGKILL);
  // Expected in two pieces, because the screen may say first that the link
  // ended, and curses then writes only the words that differ.
  EXPECT_TRUE(top->Shows("these figures are out of date"));
  EXPECT_TRUE(top->Shows("no fineserved is running"));
  daemon = StartDaemon();
  EXPECT_TRUE(top->Shows("leases granted"));
  top->Resize(24, 101);  // repaints the whole screen
  EXPECT_TRUE(top->Shows("pid " + std::to_string(daemon->pid())));
  top->Type("q");
  EXPECT_EQ(top->Wait(), 0);
}

}  // namespace
}  // namespace fineserve::integration

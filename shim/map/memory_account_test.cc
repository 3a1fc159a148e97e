#include "shim/map/memory_account.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "daemon/contract/abi/byte_size.h"
#include "daemon/contract/abi/engine_entry.h"
#include "daemon/contract/abi/transport.h"
#include "shim/testdata/view_fixture.h"

namespace fineserve::shim {
namespace {

using abi::kGiB;
using testing::EndsWith;
using testing::HasSubstr;

class MemoryAccountTest : public ViewFixture {
 protected:
  // A pool of 16 slabs of 1 GiB.
  void StartPool() {
    StartDaemon(
        {.granule_bytes = kGiB, .granules_per_slab = 1, .slab_count = 16});
    Join();
    fake_.free_bytes = 3 * kGiB / 2;
  }
  void AddEngine(uint32_t slot, const char* name, uint64_t slabs,
                 abi::EngineState state = abi::EngineState::kAlive,
                 uint32_t limit = 0) {
    abi::EngineRecord record = {};
    record.id = slot + 1;
    record.state = state;
    record.slabs_held = slabs;
    record.limit = limit;
    abi::CopyText(record.name, name);
    auto* base = reinterpret_cast<char*>(daemon_->table());
    auto* entries = reinterpret_cast<abi::EngineEntry*>(
        base + daemon_->table()->engines_offset);
    abi::StoreRecord(record, &entries[slot]);
  }
  std::string Account(size_t room = 800) {
    std::string text(room, '\0');
    if (!DescribeMemory(driver_.entry, &link_, text.data(), room)) return "";
    return text.c_str();
  }
};

TEST_F(MemoryAccountTest, NamesEachEngineThePoolAndTheRest) {
  StartPool();
  AddEngine(0, "chat", 10);
  AddEngine(2, "code", 0);
  AddEngine(5, "gone", 2, abi::EngineState::kQuarantined);
  daemon_->Withdraw(15);
  EXPECT_EQ(Account(),
            "of 80 GiB on the device 1.5 GiB are free, the pool has 15 GiB "
            "(chat 10 GiB, gone 2 GiB after its end, 3 GiB not leased), "
            "63.5 GiB are elsewhere (weights, activations, contexts, other "
            "programs)");
}

TEST_F(MemoryAccountTest, LimitOfAnEngineIsNamed) {
  StartPool();
  AddEngine(0, "chat", 3, abi::EngineState::kAlive, /*limit=*/4);
  EXPECT_THAT(Account(), HasSubstr("(chat 3 GiB of at most 4 GiB by fsctl "
                                   "limit, 13 GiB not leased)"));
}

TEST_F(MemoryAccountTest, ManyEnginesAreCountedAndTheSentenceEnds) {
  StartPool();
  const std::string name(abi::kNameBytes - 1, 'e');
  for (uint32_t slot = 0; slot < 16; ++slot) AddEngine(slot, name.c_str(), 1);
  EXPECT_THAT(Account(640), HasSubstr(" more engines, 0 B not leased)"));
  EXPECT_THAT(Account(640), EndsWith("other programs)"));
}

TEST_F(MemoryAccountTest, EntryThatIsBeingWrittenCountsAsItWas) {
  StartPool();
  AddEngine(0, "chat", 10);
  auto* base = reinterpret_cast<char*>(daemon_->table());
  auto* entry = reinterpret_cast<abi::EngineEntry*>(
      base + daemon_->table()->engines_offset);
  for (auto& word : entry->records[(entry->sequence + 1) % 2]) word = 1;
  EXPECT_THAT(Account(), HasSubstr("(chat 10 GiB, 6 GiB not leased)"));
}

TEST_F(MemoryAccountTest, WithoutADaemonOrAnAnswerNothingIsSaid) {
  EXPECT_EQ(Account(), "");
  StartPool();
  fake_.fail = "cuMemGetInfo";
  EXPECT_EQ(Account(), "");
}

}  // namespace
}  // namespace fineserve::shim

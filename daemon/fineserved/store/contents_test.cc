#include "daemon/fineserved/store/contents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace fineserve::store {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kBytes = 100;
constexpr HolderId kA{1}, kB{2};

ContentKey KeyOf(uint64_t content) { return {{content, 0}, kBytes}; }

// Contents, with the test in the role of the store: a new copy gets the next
// place.
class Book {
 public:
  // Acts like Store::Keep. Returns how many contents had to be copied.
  int Keep(HolderId holder, const std::vector<uint64_t>& contents) {
    std::vector<Contents::Entry> entries;
    places.clear();
    int copied = 0;
    for (const uint64_t content : contents) {
      std::optional<CopyId> copy = book.Find(KeyOf(content));
      if (!copy) {
        copy = book.Add(KeyOf(content), {0, next_++ * kBytes, kBytes});
        ++copied;
      }
      entries.push_back({static_cast<uint32_t>(entries.size()), *copy});
      places.push_back(book.PlaceOf(*copy).offset);
    }
    book.Hold(holder, std::move(entries), &freed);
    return copied;
  }
  int Leave(HolderId holder, const std::vector<uint64_t>& contents) {
    const int copied = Keep(holder, contents);
    book.Commit(holder, &freed);
    return copied;
  }

  Contents book;
  Contents::Freed freed;
  std::vector<uint64_t> places;  // of the last Keep

 private:
  uint64_t next_ = 0;
};

TEST(ContentsTest, UnchangedContentsAreCopiedOnce) {
  Book b;
  EXPECT_EQ(b.Leave(kA, {1, 2, 3}), 3);
  b.book.Return(kA, &b.freed);
  EXPECT_EQ(b.Leave(kA, {1, 9, 3}), 1);
  EXPECT_EQ(b.freed.size(), 1u) << "the second one's former content";
  EXPECT_EQ(b.book.held_bytes(), 3 * kBytes);
}

TEST(ContentsTest, EqualContentsOfSeveralAreHeldOnceAndUntilTheLastEnds) {
  Book b;
  EXPECT_EQ(b.Leave(kA, {1, 2}), 2);
  EXPECT_EQ(b.Leave(kB, {2, 1}), 0);
  EXPECT_EQ(b.book.held_bytes(), 2 * kBytes);
  EXPECT_EQ(b.book.unshared_bytes(), 4 * kBytes);
  b.book.Forget(kA, &b.freed);
  EXPECT_TRUE(b.freed.empty());
  b.book.Forget(kB, &b.freed);
  EXPECT_EQ(b.freed.size(), 2u);
  EXPECT_EQ(b.book.held_bytes(), 0u);
}

// A process that did not leave may have written to the bytes since.
TEST(ContentsTest, CopyOfWhoHasNotLeftIsNotOfferedToOthers) {
  Book b;
  EXPECT_EQ(b.Keep(kA, {1}), 1);
  EXPECT_EQ(b.Leave(kB, {1}), 1);
  b.book.Cancel(kA, &b.freed);
  ASSERT_EQ(b.freed.size(), 1u);
  EXPECT_EQ(b.freed[0].offset, 0u);
  EXPECT_EQ(b.book.held_bytes(), kBytes);
}

TEST(ContentsTest, EvictionThatFailsLeavesTheFormerCopies) {
  Book b;
  b.Leave(kA, {1});
  b.book.Return(kA, &b.freed);
  EXPECT_EQ(b.Keep(kA, {2}), 1);
  b.book.Cancel(kA, &b.freed);
  EXPECT_EQ(b.Leave(kA, {1}), 0);
}

TEST(ContentsTest, LongestUnusedSpareCopiesMakeRoomAndNeededOnesNever) {
  Book b;
  b.Leave(kA, {1, 2});
  b.book.Return(kA, &b.freed);
  b.Leave(kB, {3});
  b.Leave(HolderId{3}, {4});
  b.book.Return(HolderId{3}, &b.freed);
  EXPECT_EQ(b.book.spare_bytes(), 3 * kBytes);
  ASSERT_TRUE(b.book.MakeRoom(kBytes, 4 * kBytes, {}, &b.freed).ok());
  ASSERT_EQ(b.freed.size(), 1u);
  EXPECT_LE(b.freed[0].offset, kBytes) << "one of the first holder's";
  const absl::Status full =
      b.book.MakeRoom(4 * kBytes, 4 * kBytes, {}, &b.freed);
  EXPECT_THAT(std::string(full.message()), HasSubstr("holds 100 B"));
  EXPECT_EQ(b.freed.size(), 1u) << "nothing is freed for nothing";
  EXPECT_EQ(b.Leave(kA, {1, 2}), 1) << "one was freed";
}

TEST(ContentsTest, RoomIsNotMadeOfWhatTheSameEvictionFound) {
  Book b;
  b.Leave(kA, {1});
  b.book.Return(kA, &b.freed);
  const CopyId found = *b.book.Find(KeyOf(1));
  EXPECT_FALSE(b.book.MakeRoom(kBytes, kBytes, {found}, &b.freed).ok());
  EXPECT_TRUE(b.book.MakeRoom(kBytes, kBytes, {}, &b.freed).ok());
}

// The owner of the file counts the copy, and could not free it.
TEST(ContentsTest, CopyInAnothersFileIsHeldForThoseThatAreOutAlone) {
  Book b;
  b.book.SetOthers(7, true);
  const CopyId theirs = b.book.Add(KeyOf(1), {7, 0, kBytes});
  const CopyId own = b.book.Add(KeyOf(2), {0, 0, kBytes});
  b.book.Hold(kA, {{0, theirs}, {1, own}}, &b.freed);
  b.book.Hold(kB, {{0, theirs}}, &b.freed);
  b.book.Commit(kA, &b.freed);
  b.book.Commit(kB, &b.freed);
  EXPECT_EQ(b.book.held_bytes(), kBytes);
  EXPECT_EQ(b.book.others_bytes(), kBytes);
  EXPECT_EQ(b.book.copies(), 1u);
  EXPECT_EQ(b.book.unshared_bytes(), 3 * kBytes);
  EXPECT_TRUE(b.book.MakeRoom(kBytes, 2 * kBytes, {}, &b.freed).ok());
  b.book.Return(kA, &b.freed);
  EXPECT_TRUE(b.freed.empty()) << "the other is out with it";
  EXPECT_EQ(b.book.spare_bytes(), kBytes);
  EXPECT_EQ(b.book.Find(KeyOf(1)), theirs);
  b.book.Return(kB, &b.freed);
  ASSERT_EQ(b.freed.size(), 1u);
  EXPECT_EQ(b.freed[0].file, 7u);
  EXPECT_FALSE(b.book.Find(KeyOf(1)));
  EXPECT_EQ(b.book.others_bytes(), 0u);
}

// Its owner has died.
TEST(ContentsTest, CopyInAFileThatIsNoOthersAnyLongerBecomesSpare) {
  Book b;
  b.book.SetOthers(7, true);
  const CopyId copy = b.book.Add(KeyOf(1), {7, 0, kBytes});
  b.book.Hold(kA, {{0, copy}}, &b.freed);
  b.book.Commit(kA, &b.freed);
  b.book.SetOthers(7, false);
  EXPECT_EQ(b.book.held_bytes(), kBytes);
  b.book.Return(kA, &b.freed);
  EXPECT_TRUE(b.freed.empty());
  EXPECT_EQ(b.book.spare_bytes(), kBytes);
}

// Makes calls in any order, beside a model of the places that each holder
// needs.
TEST(ContentsTest, NeededCopyIsNeverFreedAndAllAreFreedInTheEnd) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  Book b;
  std::map<HolderId, std::vector<uint64_t>> out, pending;
  std::set<uint64_t> freed;
  for (int step = 0; step < 20'000; ++step) {
    const HolderId holder{static_cast<uint32_t>(random() % 5)};
    switch (random() % 8) {
      case 0: {
        if (out.contains(holder)) break;
        std::vector<uint64_t> contents;
        for (auto n = 1 + random() % 4; n > 0; --n) {
          contents.push_back(random() % 9);
        }
        b.Keep(holder, contents);
        pending[holder] = b.places;
        break;
      }
      case 1:
        b.book.Commit(holder, &b.freed);
        if (pending.contains(holder)) out[holder] = pending[holder];
        pending.erase(holder);
        break;
      case 2:
        b.book.Cancel(holder, &b.freed);
        pending.erase(holder);
        break;
      case 3:
        b.book.Return(holder, &b.freed);
        out.erase(holder);
        break;
      case 4:
        b.book.Forget(holder, &b.freed);
        out.erase(holder);
        pending.erase(holder);
        break;
      default:
        b.book
            .MakeRoom(random() % 3 * kBytes, random() % 12 * kBytes, {},
                      &b.freed)
            .IgnoreError();
    }
    for (const CopyPlace& place : std::exchange(b.freed, {})) {
      ASSERT_TRUE(freed.insert(place.offset).second) << "freed twice";
    }
    for (const auto* needed : {&out, &pending}) {
      for (const auto& [id, places] : *needed) {
        for (const uint64_t place : places) {
          ASSERT_FALSE(freed.contains(place)) << "step " << step;
        }
      }
    }
    ASSERT_EQ(b.book.held_bytes(), b.book.copies() * kBytes);
  }
  for (uint32_t i = 0; i < 5; ++i) b.book.Forget(HolderId{i}, &b.freed);
  EXPECT_EQ(b.book.held_bytes(), 0u);
}

}  // namespace
}  // namespace fineserve::store

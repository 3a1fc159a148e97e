#include "daemon/fineserved/server/process_meter.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"

namespace fineserve::server {
namespace {

constexpr size_t kBytes = size_t{64} << 20;

// Memory that has been written to, and therefore exists.
class Written {
 public:
  explicit Written(int kind)
      : at_(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                 kind | MAP_ANONYMOUS | MAP_POPULATE, -1, 0)) {
    EXPECT_NE(at_, MAP_FAILED);
    memset(at_, 1, kBytes);
  }
  ~Written() { munmap(at_, kBytes); }

 private:
  void* const at_;
};

TEST(ProcessMeterTest, CountsAnonymousMemoryAndNoneThatOthersMayShare) {
  const uint64_t before = AnonymousBytes(getpid());
  EXPECT_GT(before, 0u);
  {
    const Written shared(MAP_SHARED);
    EXPECT_LT(AnonymousBytes(getpid()), before + kBytes / 2);
  }
  const Written own(MAP_PRIVATE);
  EXPECT_GT(AnonymousBytes(getpid()), before + kBytes / 2);
}

TEST(ProcessMeterTest, ProcessThatHasEndedTakesNothing) {
  EXPECT_EQ(AnonymousBytes(0), 0u);
}

// Reports come once a second, and ask for all engines each time.
TEST(ProcessMeterTest, MeasuresOneEngineAtATimeAndAllInTurn) {
  constexpr uint64_t kSecond = 1'000'000'000;
  ProcessMeter meter;
  std::multiset<std::string> looked;
  for (uint64_t second = 1; second <= 100; ++second) {
    const size_t before = looked.size();
    for (int i = 0; i < 20; ++i) {
      const std::string engine = absl::StrCat("engine-", i);
      meter.BytesOf(
          engine,
          [&] {
            looked.insert(engine);
            return std::vector<pid_t>{getpid()};
          },
          second * kSecond);
    }
    EXPECT_LE(looked.size(), before + 1);
  }
  for (int i = 0; i < 20; ++i) {
    EXPECT_GE(looked.count(absl::StrCat("engine-", i)), 4u) << i;
  }
  const auto none = [] { return std::vector<pid_t>(); };
  EXPECT_GT(meter.BytesOf("engine-7", none, 100 * kSecond), 0u);
  meter.Forget("engine-7");
  EXPECT_EQ(meter.BytesOf("engine-7", none, 100 * kSecond), 0u);
}

}  // namespace
}  // namespace fineserve::server

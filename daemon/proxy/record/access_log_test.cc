#include "daemon/proxy/record/access_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

namespace fineserve::proxy {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Returns once `done` holds, or fails after 20 s.
template <typename Done>
void Await(const Done& done) {
  for (int i = 0; i < 4000; ++i) {
    if (done()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  FAIL() << "not within 20 s";
}

std::shared_ptr<const Life> LifeOf(const std::string& id) {
  auto life = std::make_shared<Life>();
  life->id = id;
  life->ending = Ending::kAnswered;
  return life;
}

class AccessLogTest : public testing::Test {
 protected:
  AccessLogTest() {
    char folder[] = "/tmp/fineserve-log-XXXXXX";
    folder_ = mkdtemp(folder);
  }
  ~AccessLogTest() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const {
    return folder_ + "/" + name;
  }
  // Returns the ids of the lines in a file, each of which must be JSON.
  std::vector<std::string> Ids(const std::string& name) const {
    std::vector<std::string> ids;
    std::ifstream file(Path(name));
    for (std::string line; std::getline(file, line);) {
      ids.push_back(nlohmann::json::parse(line).at("id"));
    }
    return ids;
  }

  std::string folder_;
};

TEST_F(AccessLogTest, LinesAreThereOnceTheLogHasEnded) {
  {
    const auto log = AccessLog::Open(Path("log"));
    ASSERT_TRUE(log.ok());
    (*log)->Write(LifeOf("one"));
    (*log)->Write(LifeOf("two"));
  }
  EXPECT_THAT(Ids("log"), ElementsAre("one", "two"));
}

TEST_F(AccessLogTest, FileIsAppendedToAndNotForOthers) {
  for (const char* id : {"one", "two"}) {
    (*AccessLog::Open(Path("log")))->Write(LifeOf(id));
  }
  EXPECT_THAT(Ids("log"), ElementsAre("one", "two"));
  struct stat s = {};
  ASSERT_EQ(stat(Path("log").c_str(), &s), 0);
  EXPECT_EQ(s.st_mode & 0007, 0u);
}

TEST_F(AccessLogTest, RotatedFileIsMadeAgain) {
  const auto log = AccessLog::Open(Path("log"));
  ASSERT_TRUE(log.ok());
  (*log)->Write(LifeOf("one"));
  Await([&] { return (*log)->counts().written == 1; });
  std::filesystem::rename(Path("log"), Path("log.1"));
  (*log)->Write(LifeOf("two"));
  Await([&] { return (*log)->counts().written == 2; });
  EXPECT_THAT(Ids("log.1"), ElementsAre("one"));
  EXPECT_THAT(Ids("log"), ElementsAre("two"));
}

TEST_F(AccessLogTest, ReopenMakesTheFileWithoutALine) {
  const auto log = AccessLog::Open(Path("log"));
  ASSERT_TRUE(log.ok());
  std::filesystem::rename(Path("log"), Path("log.1"));
  (*log)->Reopen();
  Await([&] { return std::filesystem::exists(Path("log")); });
  EXPECT_THAT(Ids("log"), IsEmpty());
}

TEST_F(AccessLogTest, FullDiskCostsLinesAndNothingElse) {
  const auto log = AccessLog::Open("/dev/full");
  ASSERT_TRUE(log.ok());
  (*log)->Write(LifeOf("one"));
  (*log)->Write(LifeOf("two"));
  Await([&] { return (*log)->counts().failed == 2; });
  EXPECT_EQ((*log)->counts().written, 0u);
}

// A FIFO without a reader acts as a disk that hangs.
TEST_F(AccessLogTest, WriterThatHangsCostsLinesAndTheEndIsBounded) {
  ASSERT_EQ(mkfifo(Path("fifo").c_str(), 0600), 0);
  std::fstream reader(Path("fifo"), std::ios::in | std::ios::out);
  constexpr size_t kQueued = 50;
  auto log = AccessLog::Open(Path("fifo"), kQueued);
  ASSERT_TRUE(log.ok());
  Await([&] {
    for (int i = 0; i < 300; ++i) (*log)->Write(LifeOf("x"));
    return (*log)->counts().dropped > 0;
  });
  log->reset();
}

TEST_F(AccessLogTest, FileThatCannotBeWrittenIsAnErrorThatNamesIt) {
  const auto log = AccessLog::Open(Path("no/such/folder"));
  ASSERT_FALSE(log.ok());
  EXPECT_THAT(std::string(log.status().message()),
              HasSubstr(Path("no/such/folder")));
}

}  // namespace
}  // namespace fineserve::proxy

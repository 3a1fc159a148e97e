#include "daemon/contract/wire/keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "tools/lab/process/temporary_folder.h"

namespace fineserve::wire {
namespace {

class KeysTest : public ::testing::Test {
 protected:
  const process::TemporaryFolder folder_;
  const KeyFolder keys_{folder_.path() + "/a/b"};
};

TEST_F(KeysTest, OwnKeysAreWrittenForTheOwnerAlone) {
  EXPECT_TRUE(absl::IsNotFound(keys_.Own().status()));
  const KeyPair made = *NewKeyPair();
  ASSERT_TRUE(keys_.WriteOwn(made, false).ok());
  EXPECT_EQ(keys_.Own()->secret_key, made.secret_key);
  EXPECT_EQ(keys_.Own()->public_key, made.public_key);
  struct stat facts = {};
  const std::string path = keys_.path() + "/secret";
  ASSERT_EQ(stat(path.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
  chmod(path.c_str(), 0640);
  EXPECT_TRUE(absl::IsPermissionDenied(keys_.Own().status()));
}

TEST_F(KeysTest, KeysThatOthersTrustAreNotReplacedUnasked) {
  ASSERT_TRUE(keys_.WriteOwn(*NewKeyPair(), false).ok());
  const KeyPair other = *NewKeyPair();
  EXPECT_TRUE(absl::IsAlreadyExists(keys_.WriteOwn(other, false)));
  ASSERT_TRUE(keys_.WriteOwn(other, true).ok());
  EXPECT_EQ(keys_.Own()->secret_key, other.secret_key);
}

TEST_F(KeysTest, TrustIsByNameAndEnds) {
  const std::string first = NewKeyPair()->public_key;
  const std::string second = NewKeyPair()->public_key;
  EXPECT_TRUE(keys_.Trusted()->empty());
  ASSERT_TRUE(keys_.Trust("a", first).ok());
  ASSERT_TRUE(keys_.Trust("b", first).ok());
  ASSERT_TRUE(keys_.Trust("b", second).ok());
  EXPECT_THAT(*keys_.Trusted(),
              ::testing::ElementsAre(::testing::Pair("a", first),
                                     ::testing::Pair("b", second)));
  ASSERT_TRUE(keys_.Distrust("a").ok());
  EXPECT_TRUE(absl::IsNotFound(keys_.Distrust("a")));
  EXPECT_EQ(keys_.Trusted()->size(), 1u);
}

TEST_F(KeysTest, OtherTextAsKeyOrNameIsRefused) {
  const std::string key = NewKeyPair()->public_key;
  EXPECT_TRUE(absl::IsInvalidArgument(keys_.Trust("a", key.substr(1))));
  EXPECT_TRUE(absl::IsInvalidArgument(keys_.Trust("a", std::string(40, '"'))));
  EXPECT_TRUE(absl::IsInvalidArgument(keys_.Trust("a b", key)));
  EXPECT_TRUE(absl::IsInvalidArgument(keys_.Trust("", key)));
  EXPECT_TRUE(absl::IsInvalidArgument(keys_.Trust("#a", key)));
}

TEST_F(KeysTest, AFileThatOthersCanWriteIsNotBelieved) {
  ASSERT_TRUE(keys_.Trust("a", NewKeyPair()->public_key).ok());
  const std::string path = keys_.path() + "/trusted";
  chmod(path.c_str(), 0666);
  EXPECT_TRUE(absl::IsPermissionDenied(keys_.Trusted().status()));
  chmod(path.c_str(), 0600);
  std::ofstream(path, std::ios::app) << "b notakey\n";
  const absl::Status s = keys_.Trusted().status();
  EXPECT_TRUE(absl::IsInvalidArgument(s));
  EXPECT_THAT(std::string(s.message()), ::testing::HasSubstr("trusted:2:"));
}

TEST_F(KeysTest, ServiceReadsFilesThatRootWrites) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  constexpr uid_t kService = 65'534, kOther = 65'533;
  const auto owner = [this](const std::string& name) {
    struct stat facts = {};
    stat((keys_.path() + name).c_str(), &facts);
    return facts.st_uid;
  };
  ASSERT_TRUE(keys_.WriteOwn(*NewKeyPair(), false).ok());
  EXPECT_EQ(owner("/secret"), 0u);
  ASSERT_EQ(chown(keys_.path().c_str(), kService, kService), 0);
  ASSERT_TRUE(keys_.Trust("a", NewKeyPair()->public_key).ok());
  EXPECT_EQ(owner("/trusted"), kService) << "as the folder";
  const std::string trusted = keys_.path() + "/trusted";
  ASSERT_EQ(chown(trusted.c_str(), kOther, kOther), 0);
  ASSERT_TRUE(keys_.Distrust("a").ok());
  EXPECT_EQ(owner("/trusted"), kOther) << "as the file before it";
}

}  // namespace
}  // namespace fineserve::wire

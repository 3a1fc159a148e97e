#include "daemon/proxy/keys/client.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "tools/lab/process/temporary_folder.h"

namespace fineserve::proxy {
namespace {

// A file of keys that lives as long as this object.
class KeyFile {
 public:
  absl::StatusOr<KeySet> Read(const std::string& text) {
    std::ofstream(path()) << text;
    return ReadKeys(path());
  }
  std::string path() const { return folder_.path() + "/keys"; }

 private:
  const process::TemporaryFolder folder_;
};

TEST(KeySetTest, KnowsItsKeysOnly) {
  KeyFile file;
  const auto keys = file.Read("sk-1\nsk-22 trusted\n");
  ASSERT_TRUE(keys.ok()) << keys.status();
  ASSERT_NE(keys->OfBearer("Bearer sk-1"), nullptr);
  EXPECT_FALSE(keys->OfBearer("Bearer sk-1")->trusted);
  ASSERT_NE(keys->OfBearer("bearer  sk-22"), nullptr);
  EXPECT_TRUE(keys->OfBearer("bearer  sk-22")->trusted);
  for (const char* wrong :
       {"", "sk-1", "Bearer", "Bearer ", "Bearer sk-", "Bearer sk-11",
        "Basic sk-1", "Bearer sk-22 trusted"}) {
    EXPECT_EQ(keys->OfBearer(wrong), nullptr) << wrong;
  }
  for (const char* wrong : {"", "sk-", "sk-11", "Bearer sk-1"}) {
    EXPECT_EQ(keys->Of(wrong), nullptr) << wrong;
  }
  EXPECT_TRUE(KeySet().OfBearer("")->trusted);
  EXPECT_TRUE(KeySet().Of("")->trusted);
}

TEST(KeySetTest, OperatorsKeyOpensTheAdminPortToOtherMachines) {
  KeyFile file;
  const auto keys = file.Read("sk-1\nsk-2 operator expires=2027-01-01\n");
  ASSERT_TRUE(keys.ok()) << keys.status();
  const absl::Time good =
      absl::FromCivil(absl::CivilDay(2026, 12, 31), absl::UTCTimeZone());
  const auto may = [&](const std::string& authorization) {
    return keys->MayOperate(false, authorization, good);
  };
  EXPECT_TRUE(may("Bearer sk-2"));
  EXPECT_TRUE(may("Basic " + absl::Base64Escape("me:sk-2")));
  for (const std::string& wrong :
       {std::string(), std::string("Bearer sk-1"), std::string("Basic sk-2"),
        "Basic " + absl::Base64Escape("me:sk-1"),
        "Basic " + absl::Base64Escape("sk-2")}) {
    EXPECT_FALSE(may(wrong)) << wrong;
  }
  EXPECT_TRUE(keys->MayOperate(true, "", good));
  EXPECT_FALSE(keys->MayOperate(false, "Bearer sk-2", good + absl::Hours(24)));
  EXPECT_TRUE(file.Read("sk-1\n")->MayOperate(false, "", good));
}

TEST(KeyFileTest, FileWithoutAKeyDoesNotOpenTheDoor) {
  KeyFile file;
  EXPECT_EQ(file.Read("").status().code(), absl::StatusCode::kInvalidArgument);
  const auto keys = file.Read("# staff\n\n  sk-1 \nsk-2\ttrusted\r\n");
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_NE(keys->Of("sk-1"), nullptr);
  EXPECT_TRUE(keys->Of("sk-2")->trusted);
  EXPECT_EQ(keys->Of("# staff"), nullptr);
  EXPECT_EQ(ReadKeys(file.path() + ".gone").status().code(),
            absl::StatusCode::kNotFound);
}

TEST(KeyFileTest, WarnsOfOtherReaders) {
  KeyFile file;
  ASSERT_TRUE(file.Read("sk-1\n").ok());
  const auto warning = [&](mode_t mode) {
    EXPECT_EQ(chmod(file.path().c_str(), mode), 0);
    return WarnOfReaders(file.path());
  };
  EXPECT_EQ(warning(0600), "");
  EXPECT_NE(warning(0644), "");
  if (geteuid() != 0) return;  // others cannot make a file root's
  EXPECT_EQ(warning(0440), "");
  ASSERT_EQ(chown(file.path().c_str(), 0, getegid() + 1), 0);
  EXPECT_NE(warning(0440), "");
  ASSERT_EQ(chown(file.path().c_str(), 1, getegid()), 0);
  EXPECT_NE(warning(0440), "");
}

TEST(KeyFileTest, ReadsTheTermsOfAClient) {
  KeyFile file;
  const auto keys = file.Read(
      "sk-1 name=alice models=chat,code requests_per_minute=60 "
      "tokens_per_day=1000000 parallel=4 priority=-2 slo_ttft_ms=500 "
      "slo_tpot_ms=40 expires=2027-01-31\n");
  ASSERT_TRUE(keys.ok()) << keys.status();
  const Client& alice = *keys->Of("sk-1");
  EXPECT_EQ(alice.name, "alice");
  EXPECT_TRUE(alice.MayAskFor("code"));
  EXPECT_FALSE(alice.MayAskFor("cod"));
  EXPECT_EQ(alice.requests_per_minute, 60u);
  EXPECT_EQ(alice.tokens_per_day, 1'000'000u);
  EXPECT_EQ(alice.parallel, 4u);
  EXPECT_EQ(alice.priority, -2);
  EXPECT_EQ(alice.slo_ttft_ms, 500u);
  EXPECT_EQ(alice.slo_tpot_ms, 40u);
  const absl::Time end =
      absl::FromCivil(absl::CivilDay(2027, 1, 31), absl::UTCTimeZone());
  EXPECT_EQ(RefuseByKey(&alice, end - absl::Nanoseconds(1)), absl::nullopt);
  const auto refusal = RefuseByKey(&alice, end);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->code, "key_expired");
  EXPECT_EQ(refusal->message, "this key expired on 2027-01-31");
}

TEST(KeyFileTest, KeyMayComeFromTheEnvironment) {
  KeyFile file;
  setenv("FINESERVE_TEST_KEY", "sk-secret", 1);
  const auto keys = file.Read("$FINESERVE_TEST_KEY name=alice\n");
  unsetenv("FINESERVE_TEST_KEY");
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_NE(keys->Of("sk-secret"), nullptr);
  EXPECT_EQ(keys->Of("$FINESERVE_TEST_KEY"), nullptr);
  EXPECT_EQ(file.Read("$FINESERVE_TEST_KEY name=alice\n").status().message(),
            absl::StrCat(file.path(),
                         ":1: the environment variable "
                         "FINESERVE_TEST_KEY is not set"));
}

TEST(KeyFileTest, TwoKeysOfOneNameAreOneClient) {
  KeyFile file;
  const auto keys = file.Read(
      "sk-old name=alice parallel=4 expires=2026-12-01\n"
      "sk-new name=alice parallel=4\nsk-3\n");
  ASSERT_TRUE(keys.ok()) << keys.status();
  ASSERT_EQ(keys->Named().size(), 1u);
  EXPECT_EQ(keys->Named()[0]->name, "alice");
}

TEST(KeyFileTest, MistakesNameTheirLineAndTheFix) {
  const struct {
    const char* text;
    const char* says;
  } kMistakes[] = {
      {"sk-1\nsk-2 trustd\n", ":2: \"trustd\" is no term of a key; known"},
      {"sk-1 tokens_per_day=9 trusted\n", ":1: a key with requests_per_minute"},
      {"sk-1 name=a tokens_per_day=0\n",
       "tokens_per_day is \"0\"; it must be a whole number above 0"},
      {"sk-1 name=a parallel=x\n", "parallel is \"x\"; it must be"},
      {"sk-1 name=a\"b\n", "it must be 1 to 63 letters, digits"},
      {"sk-1 name=\n", "it must be 1 to 63 letters, digits"},
      {"sk-1 expires=31.1.2027\n", "it must be a date, 2027-01-31"},
      {"sk-1 models=\n", "it must be names of models"},
      {"sk-1\nsk-1 trusted\n", ":2: the key is in the file twice"},
      {"sk-1 name=a parallel=4\nsk-2 name=a parallel=5\n",
       ":2: another key of a has other terms; they must be equal"},
  };
  for (const auto& mistake : kMistakes) {
    KeyFile file;
    const absl::Status s = file.Read(mistake.text).status();
    EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument) << mistake.text;
    EXPECT_NE(std::string(s.message()).find(mistake.says), std::string::npos)
        << s;
  }
}

}  // namespace
}  // namespace fineserve::proxy

#include "daemon/proxy/request/key_set.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace fineserve::proxy {
namespace {

TEST(KeySetTest, KnowsItsKeysOnly) {
  const KeySet keys({"sk-1", "sk-22"});
  EXPECT_EQ(keys.OfBearer("Bearer sk-1"), Standing::kClient);
  EXPECT_EQ(keys.OfBearer("bearer  sk-22"), Standing::kClient);
  for (const char* wrong : {"", "sk-1", "Bearer", "Bearer ", "Bearer sk-",
                            "Bearer sk-11", "Basic sk-1"}) {
    EXPECT_EQ(keys.OfBearer(wrong), Standing::kStranger) << wrong;
  }
  EXPECT_EQ(KeySet().OfBearer(""), Standing::kTrusted);
}

TEST(KeySetTest, KeyAloneIsNoBearersField) {
  const KeySet keys({"sk-1"}, {"sk-2"});
  EXPECT_EQ(keys.Of("sk-1"), Standing::kClient);
  EXPECT_EQ(keys.Of("sk-2"), Standing::kTrusted);
  for (const char* wrong : {"", "sk-", "sk-11", "Bearer sk-1"}) {
    EXPECT_EQ(keys.Of(wrong), Standing::kStranger) << wrong;
  }
  EXPECT_EQ(KeySet().Of(""), Standing::kTrusted);
}

TEST(KeySetTest, FileWithoutAKeyDoesNotOpenTheDoor) {
  char path[] = "/tmp/fineserve-keys-XXXXXX";
  close(mkstemp(path));
  EXPECT_EQ(ReadKeys(path).status().code(), absl::StatusCode::kInvalidArgument);
  std::ofstream(path) << "# staff\n\n  sk-1 \nsk-2\ttrusted\r\n";
  const absl::StatusOr<KeySet> keys = ReadKeys(path);
  std::ofstream(path) << "sk-1\nsk-2 trustd\n";
  EXPECT_EQ(ReadKeys(path).status().message(),
            std::string(path) + ":2: only the word trusted may follow a key");
  unlink(path);
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_EQ(keys->OfBearer("Bearer sk-1"), Standing::kClient);
  EXPECT_EQ(keys->OfBearer("Bearer sk-2"), Standing::kTrusted);
  EXPECT_EQ(keys->OfBearer("Bearer # staff"), Standing::kStranger);
  EXPECT_EQ(ReadKeys(path).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace fineserve::proxy

#include "daemon/proxy/request/key_set.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>

namespace fineserve::proxy {
namespace {

TEST(KeySetTest, AdmitsItsKeysOnly) {
  const KeySet keys({"sk-1", "sk-22"});
  EXPECT_TRUE(keys.AdmitsBearer("Bearer sk-1"));
  EXPECT_TRUE(keys.AdmitsBearer("bearer  sk-22"));
  for (const char* wrong : {"", "sk-1", "Bearer", "Bearer ", "Bearer sk-",
                            "Bearer sk-11", "Basic sk-1"}) {
    EXPECT_FALSE(keys.AdmitsBearer(wrong)) << wrong;
  }
  EXPECT_TRUE(KeySet().AdmitsBearer(""));
}

TEST(KeySetTest, KeyAloneIsNoBearersField) {
  const KeySet keys({"sk-1"});
  EXPECT_TRUE(keys.Admits("sk-1"));
  for (const char* wrong : {"", "sk-", "sk-11", "Bearer sk-1"}) {
    EXPECT_FALSE(keys.Admits(wrong)) << wrong;
  }
  EXPECT_TRUE(KeySet().Admits(""));
}

TEST(KeySetTest, FileWithoutAKeyDoesNotOpenTheDoor) {
  char path[] = "/tmp/fineserve-keys-XXXXXX";
  close(mkstemp(path));
  EXPECT_EQ(ReadKeys(path).status().code(), absl::StatusCode::kInvalidArgument);
  std::ofstream(path) << "# staff\n\n  sk-1 \nsk-2\n";
  const absl::StatusOr<KeySet> keys = ReadKeys(path);
  unlink(path);
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_TRUE(keys->AdmitsBearer("Bearer sk-1"));
  EXPECT_FALSE(keys->AdmitsBearer("Bearer # staff"));
  EXPECT_EQ(ReadKeys(path).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace fineserve::proxy

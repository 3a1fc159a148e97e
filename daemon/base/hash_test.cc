#include "daemon/base/hash.h"

#include <gtest/gtest.h>

namespace fineserve::base {
namespace {

// Test vectors of FNV's authors; names in runtime folders depend on these
// hashes.
TEST(HashTest, IsFnv1a) {
  EXPECT_EQ(Hash(""), 0xcbf29ce484222325u);
  EXPECT_EQ(Hash("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(Hash("foobar"), 0x85944171f73967e8u);
  EXPECT_EQ(Hash("bar", Hash("foo")), Hash("foobar"));
}

}  // namespace
}  // namespace fineserve::base

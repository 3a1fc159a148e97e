#include "daemon/node/etcd/gateway.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fineserve::etcd {
namespace {

TEST(GatewayTest, RangeCoversExactlyThePrefix) {
  // "a/" to "a0": base64 of each.
  EXPECT_EQ(RangeBody("a/"), R"({"key":"YS8=","range_end":"YTA="})");
  // No byte is greater than 0xff: the one before it is raised.
  EXPECT_EQ(RangeBody("a\xff"), R"({"key":"Yf8=","range_end":"Yg=="})");
}

TEST(GatewayTest, TxnNamesItsConditionsAndItsWrites) {
  Txn txn;
  txn.when = {{"k", 7}};
  txn.puts = {{"k", "v", 3}};
  txn.deletes = {"d"};
  EXPECT_EQ(
      TxnBody(txn),
      R"({"compare":[{"create_revision":"7","key":"aw==","result":"EQUAL",)"
      R"("target":"CREATE"}],"success":[{"request_put":{"key":"aw==",)"
      R"("lease":"3","value":"dg=="}},{"request_delete_range":{"key":"ZA=="}}]})");
}

TEST(GatewayTest, ReadsKeysWith64BitNumbersInStrings) {
  const auto answer = ParseRange(
      R"({"header":{"cluster_id":"18446744073709551615","revision":"9"},)"
      R"("kvs":[{"key":"aw==","create_revision":"5","mod_revision":"6",)"
      R"("value":"dg==","lease":"7587862094"}],"count":"1"})");
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->header.cluster, 18446744073709551615u);
  EXPECT_EQ(answer->header.revision, 9);
  ASSERT_EQ(answer->entries.size(), 1u);
  EXPECT_EQ(answer->entries[0].key, "k");
  EXPECT_EQ(answer->entries[0].value, "v");
  EXPECT_EQ(answer->entries[0].create_revision, 5);
  EXPECT_EQ(answer->entries[0].lease, 7587862094);
}

// The gateway leaves out what is zero or false.
TEST(GatewayTest, AbsenceMeansFalseAndZero) {
  const auto failed = ParseTxn(R"({"header":{"cluster_id":"1"}})");
  ASSERT_TRUE(failed.ok());
  EXPECT_FALSE(failed->succeeded);
  const auto lapsed =
      ParseKeepAlive(R"({"result":{"header":{"cluster_id":"1"},"ID":"4"}})");
  ASSERT_TRUE(lapsed.ok());
  EXPECT_EQ(lapsed->ttl_s, 0);
}

TEST(GatewayTest, GarbageIsRefused) {
  for (const char* body :
       {"", "[]", "{}", "null", R"({"header":7})", R"({"header":{}})",
        R"({"header":{"cluster_id":"x"}})",
        R"({"header":{"cluster_id":"1"},"kvs":{}})",
        R"({"header":{"cluster_id":"1"},"kvs":[7]})",
        R"({"header":{"cluster_id":"1"},"kvs":[{"key":"?"}]})",
        R"({"header":{"cluster_id":"1"},"kvs":[{"key":"aw=="}]})"}) {
    EXPECT_FALSE(ParseRange(body).ok()) << body;
  }
}

TEST(GatewayTest, ErrorsKeepEtcdsCodeAndWords) {
  const absl::Status full = ParseError(
      500, R"({"error":"x","message":"etcdserver: no space","code":8})");
  EXPECT_TRUE(absl::IsResourceExhausted(full));
  EXPECT_EQ(full.message(), "etcdserver: no space");
  EXPECT_TRUE(absl::IsUnavailable(ParseError(502, "<html>")));
  EXPECT_TRUE(
      absl::IsUnavailable(ParseError(500, R"({"message":"m","code":99})")));
}

}  // namespace
}  // namespace fineserve::etcd

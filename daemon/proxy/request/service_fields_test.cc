#include "daemon/proxy/request/service_fields.h"

#include <gtest/gtest.h>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace fineserve::proxy {
namespace {

absl::StatusOr<AdmissionRequest> ReadFields(absl::string_view fields,
                                            const Client& client = {},
                                            bool may_say_all = true) {
  RequestParser request(4096, 10);
  request.Feed(absl::StrCat("GET / HTTP/1.1\r\nHost: x\r\n", fields, "\r\n"));
  AdmissionRequest asked;
  const absl::Status s =
      ReadServiceFields(request, client, may_say_all, &asked);
  if (!s.ok()) return s;
  return asked;
}

TEST(ServiceFieldsTest, AreReadByLlmdsNames) {
  const auto asked = ReadFields(
      "X-SLO-TTFT-ms: 250\r\nx-slo-tpot-ms: 12.5\r\n"
      "x-gateway-inference-fairness-id: team\r\nx-fineserve-priority: -3\r\n"
      "x-fineserve-degrade: 1\r\n");
  ASSERT_TRUE(asked.ok()) << asked.status();
  EXPECT_EQ(asked->slo_ttft_us, 250'000);
  EXPECT_EQ(asked->slo_tpot_us, 12'500);
  EXPECT_EQ(asked->tenant, "team");
  EXPECT_EQ(asked->priority, -3);
  EXPECT_TRUE(asked->degrade_ok);
}

TEST(ServiceFieldsTest, NonsenseIsRefused) {
  for (const char* bad :
       {"x-slo-ttft-ms: 0\r\n", "x-slo-ttft-ms: -1\r\n",
        "x-slo-ttft-ms: nan\r\n", "x-slo-ttft-ms: inf\r\n",
        "x-slo-tpot-ms: soon\r\n", "x-slo-tpot-ms: 1e9\r\n",
        "x-fineserve-priority: high\r\n", "x-fineserve-degrade: yes\r\n"}) {
    EXPECT_FALSE(ReadFields(bad).ok()) << bad;
  }
}

TEST(ServiceFieldsTest, OrdinaryClientIsServedByItsTerms) {
  Client alice;
  alice.name = "alice";
  alice.priority = 5;
  const auto asked = ReadFields(
      "x-slo-ttft-ms: 250\r\nx-gateway-inference-fairness-id: bob\r\n"
      "x-fineserve-degrade: 1\r\n",
      alice, false);
  ASSERT_TRUE(asked.ok()) << asked.status();
  EXPECT_EQ(asked->tenant, "alice");
  EXPECT_EQ(asked->priority, 5);
  EXPECT_EQ(asked->slo_ttft_us, 0);
  EXPECT_FALSE(asked->degrade_ok);
}

TEST(ServiceFieldsTest, ClientMaySayWhatItsTermsAllow) {
  Client alice;
  alice.priority = 5;
  alice.slo_ttft_ms = 500;
  alice.slo_tpot_ms = 40;
  const auto asked = ReadFields(
      "x-slo-ttft-ms: 500\r\nx-slo-tpot-ms: 41\r\n"
      "x-fineserve-priority: 4\r\n",
      alice, false);
  ASSERT_TRUE(asked.ok()) << asked.status();
  EXPECT_EQ(asked->slo_ttft_us, 500'000);
  EXPECT_EQ(asked->slo_tpot_us, 41'000);
  EXPECT_EQ(asked->priority, 4);
  for (const char* beyond : {"x-slo-ttft-ms: 499\r\n", "x-slo-tpot-ms: 1\r\n",
                             "x-fineserve-priority: 6\r\n"}) {
    const absl::Status s = ReadFields(beyond, alice, false).status();
    EXPECT_NE(s.message().find("with this key"), std::string::npos) << beyond;
  }
}

}  // namespace
}  // namespace fineserve::proxy

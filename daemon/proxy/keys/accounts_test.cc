#include "daemon/proxy/keys/accounts.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "tools/lab/process/temporary_folder.h"

namespace fineserve::proxy {
namespace {

const absl::Time kTenPm = absl::FromCivil(
    absl::CivilSecond(2026, 11, 27, 22, 0, 0), absl::UTCTimeZone());

class AccountsTest : public ::testing::Test {
 protected:
  AccountsTest() { alice_.name = "alice"; }
  std::string path() const { return folder_.path() + "/ledger"; }
  void Adopt() {
    KeySet keys({{"sk-1", std::make_shared<Client>(alice_)}});
    const absl::Status s = accounts_.Adopt(keys, path());
    ASSERT_TRUE(s.ok()) << s;
  }
  absl::variant<Bill, ApiError> OpenBill(absl::Time now = kTenPm) {
    return accounts_.OpenBill(alice_, "chat", now);
  }
  Bill Opened() { return absl::get<Bill>(OpenBill()); }
  std::string ReasonNow(absl::Time now = kTenPm) {
    auto bill = OpenBill(now);
    auto* error = absl::get_if<ApiError>(&bill);
    return error == nullptr ? "" : error->code;
  }
  bool UsageHas(const std::string& part) const {
    return absl::StrContains(accounts_.Usage(alice_, kTenPm), part);
  }

  Client alice_;
  Accounts accounts_;

 private:
  const process::TemporaryFolder folder_;
};

TEST_F(AccountsTest, RequestCostsItsPromptAndEachTokenAsItComes) {
  Adopt();
  {
    Bill bill = Opened();
    EXPECT_TRUE(UsageHas("\"requests\":0,\"prompt_tokens\":0"));
    bill.Begin(100, kTenPm);
    bill.Begin(100, kTenPm);  // a second attempt
    bill.Generated(1, kTenPm);
    bill.Generated(3, kTenPm);
    EXPECT_TRUE(
        UsageHas("\"requests\":1,\"prompt_tokens\":100,"
                 "\"output_tokens\":3,\"tokens_today\":103"));
    bill.Settle(90, 4, kTenPm);
  }
  EXPECT_TRUE(
      UsageHas("\"requests\":1,\"prompt_tokens\":90,"
               "\"output_tokens\":4,\"tokens_today\":94"));
}

TEST_F(AccountsTest, BudgetThatIsSpentRefusesUntilMidnight) {
  alice_.tokens_per_day = 100;
  Adopt();
  Opened().Begin(99, kTenPm);
  Opened().Begin(1, kTenPm);
  auto bill = OpenBill();
  const auto& error = absl::get<ApiError>(bill);
  EXPECT_EQ(error.status, 429u);
  EXPECT_EQ(error.code, "budget_spent");
  EXPECT_EQ(error.retry_after_ms, 2u * 3600 * 1000 + 1);
  EXPECT_EQ(ReasonNow(kTenPm + absl::Hours(2)), "");
}

TEST_F(AccountsTest, ParallelRequestsGiveTheirPlacesUpWhenTheyEnd) {
  alice_.parallel = 2;
  Adopt();
  Bill first = Opened(), second = Opened();
  EXPECT_EQ(ReasonNow(), "too_many_parallel");
  Adopt();  // a reload
  EXPECT_EQ(ReasonNow(), "too_many_parallel");
  { const Bill ends = std::move(first); }
  EXPECT_EQ(ReasonNow(), "");
}

TEST_F(AccountsTest, RefusedRequestsDoNotCountForTheRate) {
  alice_.requests_per_minute = 1;
  alice_.parallel = 1;
  Adopt();
  {
    const Bill bill = Opened();
    EXPECT_EQ(ReasonNow(kTenPm + absl::Minutes(1)), "too_many_parallel");
  }
  EXPECT_EQ(ReasonNow(kTenPm + absl::Seconds(59)), "rate_limit_exceeded");
  EXPECT_EQ(ReasonNow(kTenPm + absl::Minutes(1)), "");
}

TEST_F(AccountsTest, ModelsOfOthersAreRefused) {
  alice_.models = {"code"};
  Adopt();
  EXPECT_EQ(ReasonNow(), "model_not_allowed");
}

TEST_F(AccountsTest, ClientWithoutANameIsNotCounted) {
  Adopt();
  const Client nameless;
  auto bill = accounts_.OpenBill(nameless, "chat", kTenPm);
  absl::get<Bill>(bill).Begin(100, kTenPm);
  EXPECT_EQ(accounts_.Usage(nameless, kTenPm), "null");
  EXPECT_TRUE(UsageHas("\"requests\":0"));
}

}  // namespace
}  // namespace fineserve::proxy

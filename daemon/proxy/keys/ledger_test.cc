#include "daemon/proxy/keys/ledger.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "tools/lab/process/temporary_folder.h"

namespace fineserve::proxy {
namespace {

const absl::Time kNoon = absl::FromCivil(
    absl::CivilSecond(2026, 11, 27, 12, 0, 0), absl::UTCTimeZone());

class LedgerTest : public ::testing::Test {
 protected:
  std::string path() const { return folder_.path() + "/ledger"; }
  std::unique_ptr<Ledger> Open() {
    auto ledger = Ledger::Open(path());
    EXPECT_TRUE(ledger.ok()) << ledger.status();
    return *std::move(ledger);
  }

 private:
  const process::TemporaryFolder folder_;
};

TEST_F(LedgerTest, NextProxyFindsTheAccounts) {
  {
    const auto ledger = Open();
    Account* const alice = *ledger->AccountOf("alice");
    alice->Charge(10, 5, kNoon);
    ASSERT_NE(*ledger->AccountOf("bob"), alice);
  }
  struct stat st;
  ASSERT_EQ(stat(path().c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
  const auto ledger = Open();
  const Account& alice = **ledger->AccountOf("alice");
  EXPECT_EQ(alice.prompt_tokens, 10u);
  EXPECT_EQ(alice.output_tokens, 5u);
  EXPECT_EQ(alice.SpentOn(kNoon), 15u);
  EXPECT_EQ((*ledger->AccountOf("bob"))->SpentOn(kNoon), 0u);
}

TEST_F(LedgerTest, FileWhoseMakerDiedIsMadeAgain) {
  Open();
  ASSERT_EQ(truncate(path().c_str(), 0), 0);
  ASSERT_EQ(truncate(path().c_str(), 4096 + 128 * Ledger::kAccounts), 0);
  const auto ledger = Open();
  EXPECT_TRUE(ledger->AccountOf("alice").ok());
}

TEST_F(LedgerTest, AnotherFileIsNotTouched) {
  std::ofstream(path()) << "a letter";
  const absl::Status s = Ledger::Open(path()).status();
  EXPECT_EQ(s.code(), absl::StatusCode::kFailedPrecondition);
  std::string text;
  std::getline(std::ifstream(path()), text);
  EXPECT_EQ(text, "a letter");
}

TEST_F(LedgerTest, FullLedgerSaysSo) {
  const auto ledger = Open();
  for (size_t i = 0; i < Ledger::kAccounts; ++i) {
    ASSERT_TRUE(ledger->AccountOf(absl::StrCat("client-", i)).ok());
  }
  EXPECT_EQ(ledger->AccountOf("one more").status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(ledger->AccountOf("client-1023").ok());
}

// Proxies charge one account and are killed, again and again: the account then
// holds what each proxy had charged, and at most one token that the proxy had
// not reported yet.
TEST_F(LedgerTest, KilledProxyLosesNothingAndChargesNothingTwice) {
  const auto ledger = Open();
  Account* const account = *ledger->AccountOf("alice");
  for (int round = 0; round < 50; ++round) {
    int progress[2];
    ASSERT_EQ(pipe(progress), 0);
    const uint64_t before = account->output_tokens;
    const pid_t child = fork();
    if (child == 0) {
      const auto its = Ledger::Open(path());
      Account* const charged = *(*its)->AccountOf("alice");
      for (char c = 0;; ++c) {
        charged->Charge(0, 1, kNoon);
        if (write(progress[1], &c, 1) != 1) _exit(1);
      }
    }
    uint64_t seen = 0;
    char c;
    while (seen < 10 && read(progress[0], &c, 1) == 1) ++seen;
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    close(progress[1]);
    while (read(progress[0], &c, 1) == 1) ++seen;
    close(progress[0]);
    const uint64_t charged = account->output_tokens - before;
    EXPECT_GE(charged, seen);
    EXPECT_LE(charged, seen + 1);  // killed before it had said so
  }
  // A proxy that dies between the two additions raises only the day's sum.
  EXPECT_LE(account->SpentOn(kNoon) - account->output_tokens, 50u);
}

TEST_F(LedgerTest, DayThatIsOverStartsFromZero) {
  const auto ledger = Open();
  Account* const account = *ledger->AccountOf("alice");
  account->Charge(100, 0, kNoon);
  EXPECT_EQ(account->SpentOn(kNoon + absl::Hours(11)), 100u);
  EXPECT_EQ(account->SpentOn(kNoon + absl::Hours(12)), 0u);
  account->Charge(7, 0, kNoon + absl::Hours(12));
  EXPECT_EQ(account->SpentOn(kNoon + absl::Hours(12)), 7u);
  EXPECT_EQ(account->prompt_tokens, 107u);
}

TEST_F(LedgerTest, ClockThatIsSetBackDoesNotGiveADayTwice) {
  const auto ledger = Open();
  Account* const account = *ledger->AccountOf("alice");
  const absl::Time midnight = kNoon + absl::Hours(12);
  account->Charge(100, 0, midnight);
  EXPECT_EQ(account->SpentOn(midnight - absl::Seconds(1)), 100u);
  // A clock that was a year ahead does not hold the client up for a year.
  account->Charge(1, 0, midnight + absl::Hours(24 * 365));
  EXPECT_EQ(account->SpentOn(midnight), 0u);
  account->Charge(5, 0, midnight);
  EXPECT_EQ(account->SpentOn(midnight), 5u);
}

TEST_F(LedgerTest, GivesBackAtMostWhatThereIs) {
  const auto ledger = Open();
  Account* const account = *ledger->AccountOf("alice");
  account->Charge(100, 3, kNoon);
  account->Charge(-40, 7, kNoon);
  EXPECT_EQ(account->SpentOn(kNoon), 70u);
  account->Charge(-100, 0, kNoon + absl::Hours(24));
  EXPECT_EQ(account->SpentOn(kNoon + absl::Hours(24)), 0u);
  EXPECT_EQ(account->prompt_tokens, 0u);
}

TEST_F(LedgerTest, RateLetsAMinutesRequestsComeAtOnceAndThenEvenly) {
  const auto ledger = Open();
  Account* const account = *ledger->AccountOf("alice");
  for (int i = 0; i < 60; ++i) {
    EXPECT_EQ(account->TakeRequest(60, kNoon), absl::nullopt) << i;
  }
  EXPECT_EQ(account->TakeRequest(60, kNoon), absl::Seconds(1));
  EXPECT_EQ(account->TakeRequest(60, kNoon + absl::Milliseconds(400)),
            absl::Milliseconds(600));
  EXPECT_EQ(account->TakeRequest(60, kNoon + absl::Seconds(1)), absl::nullopt);
  EXPECT_NE(account->TakeRequest(60, kNoon + absl::Seconds(1)), absl::nullopt);
  // A clock that was set back a year does not hold the client up for a year.
  const absl::Time year_before = kNoon - absl::Hours(24 * 365);
  EXPECT_EQ(account->TakeRequest(60, year_before), absl::nullopt);
  EXPECT_EQ(account->TakeRequest(60, year_before), absl::Seconds(1));
  EXPECT_EQ(account->TakeRequest(60, year_before + absl::Seconds(1)),
            absl::nullopt);
}

}  // namespace
}  // namespace fineserve::proxy

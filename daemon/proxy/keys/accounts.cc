#include "daemon/proxy/keys/accounts.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace fineserve::proxy {
namespace {

ApiError Limited(absl::string_view code, absl::string_view message,
                 absl::Duration until) {
  ApiError error = RateLimitError(code, message);
  const int64_t ms = absl::ToInt64Milliseconds(until) + 1;
  error.retry_after_ms = static_cast<uint32_t>(std::max<int64_t>(ms, 1));
  return error;
}

absl::Duration UntilMidnight(absl::Time now) {
  const absl::CivilDay today = absl::ToCivilDay(now, absl::UTCTimeZone());
  return absl::FromCivil(today + 1, absl::UTCTimeZone()) - now;
}

// 0: null.
std::string LimitText(uint64_t limit) {
  return limit == 0 ? "null" : absl::StrCat(limit);
}

int64_t Difference(uint32_t to, uint32_t from) {
  return int64_t{to} - int64_t{from};
}

}  // namespace

Bill::Bill(Account* account, std::shared_ptr<uint32_t> place)
    : account_(account), place_(std::move(place)) {
  ++*place_;
}

Bill::~Bill() {
  if (place_ != nullptr) --*place_;
}

void Bill::Begin(uint32_t prompt_tokens, absl::Time now) {
  if (account_ == nullptr || begun_) return;
  begun_ = true;
  account_->requests.fetch_add(1, std::memory_order_relaxed);
  Settle(prompt_tokens, 0, now);
}

void Bill::Generated(uint32_t output_tokens, absl::Time now) {
  if (output_tokens != output_) Settle(prompt_, output_tokens, now);
}

void Bill::Settle(uint32_t prompt_tokens, uint32_t output_tokens,
                  absl::Time now) {
  if (account_ == nullptr) return;
  account_->Charge(
      Difference(prompt_tokens, std::exchange(prompt_, prompt_tokens)),
      Difference(output_tokens, std::exchange(output_, output_tokens)), now);
}

absl::Status Accounts::Adopt(const KeySet& keys, const std::string& path) {
  std::map<std::string, Held, std::less<>> held;
  for (const std::shared_ptr<const Client>& client : keys.Named()) {
    if (ledger_ == nullptr) {
      auto ledger = Ledger::Open(path);
      if (!ledger.ok()) return ledger.status();
      ledger_ = *std::move(ledger);
    }
    const absl::StatusOr<Account*> account = ledger_->AccountOf(client->name);
    if (!account.ok()) return account.status();
    const auto before = held_.find(client->name);
    held[client->name] = {client, *account,
                          before != held_.end()
                              ? before->second.under_way
                              : std::make_shared<uint32_t>(0)};
  }
  held_ = std::move(held);
  return absl::OkStatus();
}

absl::variant<Bill, ApiError> Accounts::OpenBill(const Client& client,
                                                 absl::string_view model,
                                                 absl::Time now) {
  if (!client.MayAskFor(model)) {
    return ClientError(403, "model_not_allowed",
                       absl::StrCat("this key may not ask for ", model));
  }
  const auto it = held_.find(client.name);
  if (it == held_.end()) return Bill();
  const Held& held = it->second;
  if (client.parallel != 0 && *held.under_way >= client.parallel) {
    return Limited("too_many_parallel",
                   absl::StrCat("this key may have ", client.parallel,
                                " requests under way at a time"),
                   absl::Seconds(1));
  }
  if (client.tokens_per_day != 0 &&
      held.account->SpentOn(now) >= client.tokens_per_day) {
    return Limited(
        "budget_spent",
        absl::StrCat("this key has spent its ", client.tokens_per_day,
                     " tokens of this day (UTC)"),
        UntilMidnight(now));
  }
  if (client.requests_per_minute != 0) {
    const absl::optional<absl::Duration> wait =
        held.account->TakeRequest(client.requests_per_minute, now);
    if (wait) {
      return Limited(
          "rate_limit_exceeded",
          absl::StrCat("this key may send ", client.requests_per_minute,
                       " requests a minute"),
          *wait);
    }
  }
  return Bill(held.account, held.under_way);
}

std::string Accounts::Usage(const Client& client, absl::Time now) const {
  const auto it = held_.find(client.name);
  if (it == held_.end()) return "null";
  const Account& account = *it->second.account;
  return absl::StrCat(
      "{\"key\":", JsonQuote(client.name),
      ",\"requests\":", account.requests.load(std::memory_order_relaxed),
      ",\"prompt_tokens\":",
      account.prompt_tokens.load(std::memory_order_relaxed),
      ",\"output_tokens\":",
      account.output_tokens.load(std::memory_order_relaxed),
      ",\"tokens_today\":", account.SpentOn(now),
      ",\"tokens_per_day\":", LimitText(client.tokens_per_day),
      ",\"day_ends_s\":", absl::ToInt64Seconds(UntilMidnight(now)),
      ",\"under_way\":", *it->second.under_way,
      ",\"parallel\":", LimitText(client.parallel),
      ",\"requests_per_minute\":", LimitText(client.requests_per_minute), "}");
}

std::string Accounts::Usages(absl::Time now) const {
  std::vector<std::string> all;
  for (const auto& [name, held] : held_) {
    all.push_back(Usage(*held.client, now));
  }
  return absl::StrCat("{\"keys\":[", absl::StrJoin(all, ","), "]}");
}

}  // namespace fineserve::proxy

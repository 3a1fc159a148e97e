#ifndef DAEMON_PROXY_KEYS_ACCOUNTS_H_
#define DAEMON_PROXY_KEYS_ACCOUNTS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "daemon/base/http/api_error.h"
#include "daemon/proxy/keys/client.h"
#include "daemon/proxy/keys/ledger.h"

namespace fineserve::proxy {

// The cost of one request to its client so far, and the request's place among
// the client's `parallel` ones, which it gives up when it ends. The prompt is
// charged when an engine gets the request and each token of the answer as it
// comes, so that the account is right whenever the proxy is killed. Move-only.
// A default-constructed bill charges nothing.
class Bill {
 public:
  Bill() = default;
  Bill(Account* account, std::shared_ptr<uint32_t> place);
  ~Bill();
  Bill(Bill&&) = default;
  Bill& operator=(Bill&&) = default;

  // Charges the prompt of about `prompt_tokens` when an engine gets the
  // request. Further attempts cost nothing.
  void Begin(uint32_t prompt_tokens, absl::Time now);
  // Charges the answer, which has `output_tokens` so far.
  void Generated(uint32_t output_tokens, absl::Time now);
  // Corrects the charge to the exact cost, as in the engine's usage; 0 and 0 if
  // the request failed.
  void Settle(uint32_t prompt_tokens, uint32_t output_tokens, absl::Time now);

  bool begun() const { return begun_; }
  uint32_t prompt_tokens() const { return prompt_; }
  uint32_t output_tokens() const { return output_; }

 private:
  // A shared_ptr, because a reload may drop the client while its request runs.
  Account* account_ = nullptr;  // null: nothing is charged
  std::shared_ptr<uint32_t> place_;
  bool begun_ = false;
  uint32_t prompt_ = 0;
  uint32_t output_ = 0;
};

// The accounts of the clients that have a name. Confined to the proxy's thread.
class Accounts {
 public:
  // Gives each client of `keys` with a name an account, in the ledger at
  // `path`, which the first call opens. After an error nothing has changed.
  absl::Status Adopt(const KeySet& keys, const std::string& path);

  // Takes a request of `client` for `model`, or returns the reason for refusing
  // it: a model that the client may not use (403), its requests per minute, its
  // requests at a time or its tokens of this day (429).
  absl::variant<Bill, ApiError> OpenBill(const Client& client,
                                         absl::string_view model,
                                         absl::Time now);

  // Returns {"key","requests",…}; null if the client has no account.
  std::string Usage(const Client& client, absl::Time now) const;
  // {"keys":[…]} of all.
  std::string Usages(absl::Time now) const;

  // Calls act(client, tokens spent today) for each client with an account.
  template <typename Act>
  void ForEach(absl::Time now, Act act) const {
    for (const auto& [name, held] : held_) {
      act(*held.client, held.account->SpentOn(now));
    }
  }

 private:
  struct Held {
    std::shared_ptr<const Client> client;
    Account* account = nullptr;
    std::shared_ptr<uint32_t> under_way;
  };

  std::unique_ptr<Ledger> ledger_;                 // null: no client has a name
  std::map<std::string, Held, std::less<>> held_;  // by name
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_KEYS_ACCOUNTS_H_

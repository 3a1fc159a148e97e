#include "daemon/proxy/keys/client.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "daemon/base/errno_status.h"

namespace fineserve::proxy {
namespace {

// Limit on a name in the ledger, without its terminating zero.
constexpr size_t kMostNameBytes = 63;

bool IsEqual(absl::string_view a, absl::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  }
  return difference == 0;
}

template <typename Number>
bool SetNumber(absl::string_view text, Number* to) {
  return absl::SimpleAtoi(text, to) && *to > 0;
}

// Sets a name, which must be usable as a label of metrics and a word of the
// access log.
bool SetName(absl::string_view text, std::string* to) {
  *to = std::string(text);
  return !text.empty() && text.size() <= kMostNameBytes &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isalnum(c) || absl::StrContains("-_.@", c);
         });
}

bool SetModels(absl::string_view text, std::vector<std::string>* to) {
  *to = absl::StrSplit(text, ',', absl::SkipEmpty());
  return !to->empty();
}

bool SetPriority(absl::string_view text, absl::optional<int>* to) {
  int priority = 0;
  const bool is_number = absl::SimpleAtoi(text, &priority);
  *to = priority;
  return is_number;
}

// Sets the time at which the key expires: the beginning of this day.
bool SetExpiry(absl::string_view text, absl::Time* to) {
  std::string ignored;
  return absl::ParseTime("%Y-%m-%d", text, to, &ignored);
}

// Sets one of `client`'s terms. InvalidArgument if the word is not a term.
absl::Status SetTerm(absl::string_view word, Client* client) {
  if (word == "trusted") {
    client->trusted = true;
    return absl::OkStatus();
  }
  if (word == "operator") {
    client->operates = true;
    return absl::OkStatus();
  }
  const std::pair<absl::string_view, absl::string_view> term =
      absl::StrSplit(word, absl::MaxSplits('=', 1));
  const absl::string_view name = term.first, value = term.second;
  const auto wants = [&](bool is_set, absl::string_view what) {
    if (is_set) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is \"", value, "\"; it must be ", what));
  };
  constexpr absl::string_view kCount = "a whole number above 0";
  if (name == "name") {
    return wants(
        SetName(value, &client->name),
        absl::StrCat("1 to ", kMostNameBytes, " letters, digits and - _ . @"));
  }
  if (name == "models") {
    return wants(SetModels(value, &client->models),
                 "names of models with commas between them");
  }
  if (name == "requests_per_minute") {
    return wants(SetNumber(value, &client->requests_per_minute), kCount);
  }
  if (name == "tokens_per_day") {
    return wants(SetNumber(value, &client->tokens_per_day), kCount);
  }
  if (name == "parallel") {
    return wants(SetNumber(value, &client->parallel), kCount);
  }
  if (name == "priority") {
    return wants(SetPriority(value, &client->priority), "a whole number");
  }
  if (name == "slo_ttft_ms") {
    return wants(SetNumber(value, &client->slo_ttft_ms), kCount);
  }
  if (name == "slo_tpot_ms") {
    return wants(SetNumber(value, &client->slo_tpot_ms), kCount);
  }
  if (name == "expires") {
    return wants(SetExpiry(value, &client->expires), "a date, 2027-01-31");
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", word,
      "\" is no term of a key; known here: trusted, operator, name=, models=, "
      "requests_per_minute=, tokens_per_day=, parallel=, priority=, "
      "slo_ttft_ms=, slo_tpot_ms=, expires="));
}

// An error if a limited client has no name: only an account can be limited, and
// only a name has one.
absl::Status CheckIsNamed(const Client& client) {
  if (!client.IsLimited() || !client.name.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "a key with requests_per_minute, tokens_per_day or parallel needs a "
      "name=");
}

// Returns the key that a line's first word gives or names.
absl::StatusOr<std::string> KeyOf(const std::string& word) {
  if (word[0] != '$') return word;
  const char* const value = getenv(word.c_str() + 1);
  if (value != nullptr && *value != 0) return std::string(value);
  return absl::InvalidArgumentError(
      absl::StrCat("the environment variable ", word.substr(1), " is not set"));
}

class KeyLines {
 public:
  absl::Status Read(const std::vector<std::string>& words) {
    absl::StatusOr<std::string> key = KeyOf(words[0]);
    if (!key.ok()) return key.status();
    for (const KeySet::Held& held : keys_) {
      if (held.first == *key) {
        return absl::InvalidArgumentError("the key is in the file twice");
      }
    }
    Client client;
    for (size_t i = 1; i < words.size(); ++i) {
      const absl::Status s = SetTerm(words[i], &client);
      if (!s.ok()) return s;
    }
    const absl::Status s = CheckIsNamed(client);
    if (!s.ok()) return s;
    return Add(*std::move(key), std::move(client));
  }
  std::vector<KeySet::Held> Take() { return std::move(keys_); }

 private:
  absl::Status Add(std::string key, Client client) {
    auto shared = std::make_shared<const Client>(std::move(client));
    if (!shared->name.empty()) {
      const auto [it, is_new] = by_name_.emplace(shared->name, shared);
      // Ignores the expiry: a key may expire later than the one that it
      // replaces.
      Client former = *it->second;
      former.expires = shared->expires;
      if (!(former == *shared)) {
        return absl::InvalidArgumentError(
            absl::StrCat("another key of ", shared->name,
                         " has other terms; they must be equal"));
      }
    }
    keys_.emplace_back(std::move(key), std::move(shared));
    return absl::OkStatus();
  }

  std::vector<KeySet::Held> keys_;
  std::map<std::string, std::shared_ptr<const Client>> by_name_;
};

}  // namespace

bool Client::MayAskFor(absl::string_view model) const {
  return models.empty() ||
         std::find(models.begin(), models.end(), model) != models.end();
}

std::shared_ptr<const Client> KeySet::Of(absl::string_view presented) const {
  static const auto& kAnyone = *new std::shared_ptr<const Client>(
      std::make_shared<Client>(Client{.trusted = true}));
  if (is_open()) return kAnyone;
  const Held* found = nullptr;
  for (const Held& held : keys_) {
    if (IsEqual(held.first, presented)) found = &held;
  }
  return found == nullptr ? nullptr : found->second;
}

std::shared_ptr<const Client> KeySet::OfBearer(
    absl::string_view authorization) const {
  constexpr absl::string_view kScheme = "bearer ";
  if (is_open()) return Of("");
  if (!absl::StartsWithIgnoreCase(authorization, kScheme)) return nullptr;
  return Of(absl::StripAsciiWhitespace(authorization.substr(kScheme.size())));
}

bool KeySet::MayOperate(bool is_local, absl::string_view authorization,
                        absl::Time now) const {
  const bool is_asked =
      std::any_of(keys_.begin(), keys_.end(),
                  [](const Held& held) { return held.second->operates; });
  if (is_local || !is_asked) return true;
  auto client = OfBearer(authorization);
  constexpr absl::string_view kScheme = "basic ";
  std::string pair;
  if (absl::StartsWithIgnoreCase(authorization, kScheme) &&
      absl::Base64Unescape(
          absl::StripAsciiWhitespace(authorization.substr(kScheme.size())),
          &pair)) {
    const size_t colon = pair.find(':');
    if (colon != pair.npos)
      client = Of(absl::string_view(pair).substr(colon + 1));
  }
  return client != nullptr && client->operates && now < client->expires;
}

std::vector<std::shared_ptr<const Client>> KeySet::Named() const {
  std::map<std::string, std::shared_ptr<const Client>> named;
  for (const Held& held : keys_) {
    if (!held.second->name.empty()) {
      named.emplace(held.second->name, held.second);
    }
  }
  std::vector<std::shared_ptr<const Client>> clients;
  for (auto& [name, client] : named) clients.push_back(client);
  return clients;
}

absl::optional<ApiError> RefuseByKey(const Client* client, absl::Time now) {
  if (client == nullptr) {
    return ClientError(401, "invalid_api_key",
                       "no valid key; send Authorization: Bearer KEY");
  }
  if (now < client->expires) return absl::nullopt;
  return ClientError(401, "key_expired",
                     absl::StrCat("this key expired on ",
                                  absl::FormatTime("%Y-%m-%d", client->expires,
                                                   absl::UTCTimeZone())));
}

absl::StatusOr<KeySet> ReadKeys(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    return base::ErrnoStatus("cannot read keys " + path,
                             absl::StatusCode::kNotFound);
  }
  KeyLines lines;
  int number = 1;
  for (std::string line; std::getline(file, line); ++number) {
    const std::vector<std::string> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty() || words[0][0] == '#') continue;
    const absl::Status s = lines.Read(words);
    if (!s.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ":", number, ": ", s.message()));
    }
  }
  KeySet keys(lines.Take());
  if (keys.is_open()) {
    return absl::InvalidArgumentError(absl::StrCat(
        path,
        " holds no key; write one per line, or remove keys from [proxy]"));
  }
  return keys;
}

std::string WarnOfReaders(const std::string& path) {
  struct stat st;
  if (stat(path.c_str(), &st) != 0) return "";
  // As in Kubernetes and Debian, the file may belong to root and be readable by
  // our group.
  const bool by_group = st.st_uid == 0 && st.st_gid == getegid();
  if ((st.st_mode & (by_group ? 0027u : 0077u)) == 0) return "";
  return absl::StrFormat(
      "other users may read the keys in %s (mode %04o): chmod 600 %s", path,
      st.st_mode & 07777u, path);
}

}  // namespace fineserve::proxy

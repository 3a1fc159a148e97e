#include "daemon/node/etcd/gateway.h"

#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace fineserve::etcd {
namespace {

using Json = nlohmann::json;

constexpr size_t kErrorChars = 300;

std::string Base64(absl::string_view bytes) {
  return absl::Base64Escape(bytes);
}

// The least key that does not begin with `prefix`, as etcd wants ranges to end.
// "\0" means that the range extends to the last key.
std::string EndOf(absl::string_view prefix) {
  std::string end(prefix);
  while (!end.empty() && static_cast<unsigned char>(end.back()) == 0xff) {
    end.pop_back();
  }
  if (end.empty()) return std::string(1, '\0');
  end.back() = static_cast<char>(end.back() + 1);
  return end;
}

absl::Status Wrong(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("not an answer of etcd's: ", what));
}

absl::StatusOr<Json> Parse(absl::string_view body) {
  Json json = Json::parse(body.begin(), body.end(), nullptr,
                          /*allow_exceptions=*/false);
  if (!json.is_object()) return Wrong("no JSON object");
  return json;
}

// A 64-bit number, which the gateway writes as a string; 0 if it is left out.
template <typename Number>
bool Get(const Json& json, const char* name, Number* out) {
  const auto found = json.find(name);
  if (found == json.end()) return true;
  if (found->is_number_integer()) {
    *out = found->get<Number>();
    return true;
  }
  return found->is_string() &&
         absl::SimpleAtoi(found->get_ref<const std::string&>(), out);
}

bool GetBytes(const Json& json, const char* name, std::string* out) {
  const auto found = json.find(name);
  if (found == json.end()) return true;
  return found->is_string() &&
         absl::Base64Unescape(found->get_ref<const std::string&>(), out);
}

absl::StatusOr<Header> HeaderOf(const Json& json) {
  const auto found = json.find("header");
  if (found == json.end() || !found->is_object()) return Wrong("no header");
  Header header;
  if (!Get(*found, "cluster_id", &header.cluster) ||
      !Get(*found, "revision", &header.revision) || header.cluster == 0) {
    return Wrong("a header without cluster_id");
  }
  return header;
}

absl::StatusOr<Entry> EntryOf(const Json& json) {
  Entry entry;
  if (!json.is_object() || !GetBytes(json, "key", &entry.key) ||
      !GetBytes(json, "value", &entry.value) ||
      !Get(json, "create_revision", &entry.create_revision) ||
      !Get(json, "mod_revision", &entry.mod_revision) ||
      !Get(json, "lease", &entry.lease) || entry.create_revision <= 0) {
    return Wrong("a malformed key");
  }
  return entry;
}

absl::StatusOr<LeaseAnswer> LeaseOf(const Json& json) {
  const absl::StatusOr<Header> header = HeaderOf(json);
  if (!header.ok()) return header.status();
  LeaseAnswer answer{*header, 0};
  if (!Get(json, "TTL", &answer.ttl_s)) return Wrong("a malformed TTL");
  return answer;
}

}  // namespace

std::string RangeBody(absl::string_view prefix) {
  return Json{{"key", Base64(prefix)}, {"range_end", Base64(EndOf(prefix))}}
      .dump();
}

std::string TxnBody(const Txn& txn) {
  Json when = Json::array(), then = Json::array();
  for (const CreatedAt& c : txn.when) {
    when.push_back({{"target", "CREATE"},
                    {"result", "EQUAL"},
                    {"key", Base64(c.key)},
                    {"create_revision", absl::StrCat(c.revision)}});
  }
  for (const Write& w : txn.puts) {
    then.push_back({{"request_put",
                     {{"key", Base64(w.key)},
                      {"value", Base64(w.value)},
                      {"lease", absl::StrCat(w.lease)}}}});
  }
  for (const std::string& key : txn.deletes) {
    then.push_back({{"request_delete_range", {{"key", Base64(key)}}}});
  }
  return Json{{"compare", when}, {"success", then}}.dump();
}

std::string GrantBody(int64_t lease, int64_t ttl_s) {
  return Json{{"ID", absl::StrCat(lease)}, {"TTL", absl::StrCat(ttl_s)}}.dump();
}

std::string LeaseBody(int64_t lease) {
  return Json{{"ID", absl::StrCat(lease)}}.dump();
}

absl::StatusOr<RangeAnswer> ParseRange(absl::string_view body) {
  const absl::StatusOr<Json> json = Parse(body);
  if (!json.ok()) return json.status();
  const absl::StatusOr<Header> header = HeaderOf(*json);
  if (!header.ok()) return header.status();
  RangeAnswer answer{*header, {}};
  const auto kvs = json->find("kvs");
  if (kvs == json->end()) return answer;
  if (!kvs->is_array()) return Wrong("kvs is no list");
  for (const Json& kv : *kvs) {
    absl::StatusOr<Entry> entry = EntryOf(kv);
    if (!entry.ok()) return entry.status();
    answer.entries.push_back(*std::move(entry));
  }
  return answer;
}

absl::StatusOr<TxnAnswer> ParseTxn(absl::string_view body) {
  const absl::StatusOr<Json> json = Parse(body);
  if (!json.ok()) return json.status();
  const absl::StatusOr<Header> header = HeaderOf(*json);
  if (!header.ok()) return header.status();
  const auto succeeded = json->find("succeeded");
  return TxnAnswer{*header, succeeded != json->end() && *succeeded == true};
}

absl::StatusOr<LeaseAnswer> ParseGrant(absl::string_view body) {
  const absl::StatusOr<Json> json = Parse(body);
  return json.ok() ? LeaseOf(*json) : json.status();
}

absl::StatusOr<LeaseAnswer> ParseKeepAlive(absl::string_view body) {
  const absl::StatusOr<Json> json = Parse(body);
  if (!json.ok()) return json.status();
  const auto result = json->find("result");
  if (result == json->end() || !result->is_object()) {
    return ParseError(200, body);
  }
  return LeaseOf(*result);
}

absl::StatusOr<Header> ParseHeader(absl::string_view body) {
  const absl::StatusOr<Json> json = Parse(body);
  return json.ok() ? HeaderOf(*json) : json.status();
}

absl::Status ParseError(int status, absl::string_view body) {
  const absl::StatusOr<Json> json = Parse(body);
  Json error = json.ok() ? *json : Json::object();
  // A stream's errors are one level deeper.
  if (const auto inner = error.find("error");
      inner != error.end() && inner->is_object()) {
    error = Json(*inner);
  }
  int code = 0;
  for (const char* name : {"code", "grpc_code"}) {
    if (code == 0 && !Get(error, name, &code)) code = 0;
  }
  const auto message = error.find("message");
  if (code <= 0 || code > 16 || message == error.end() ||
      !message->is_string()) {
    return absl::UnavailableError(absl::StrCat("it answered HTTP ", status));
  }
  return absl::Status(
      static_cast<absl::StatusCode>(code),
      message->get_ref<const std::string&>().substr(0, kErrorChars));
}

}  // namespace fineserve::etcd

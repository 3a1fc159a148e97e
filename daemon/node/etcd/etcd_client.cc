#include "daemon/node/etcd/etcd_client.h"

#include <algorithm>
#include <boost/asio/experimental/as_tuple.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <nlohmann/json.hpp>
#include <utility>

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

// Returns the least key that is greater than all keys with `prefix`, with which
// etcd wants ranges to end. "\0" means that the range extends to the last key.
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

// Reads a 64-bit number, which the gateway writes as a string; 0 if it is left
// out.
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

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;
using Request = http::request<http::string_body>;

constexpr auto kTuple = asio::experimental::as_tuple(asio::use_awaitable);
// Size limit of one answer: a fleet's keys are some hundred KiB.
constexpr uint64_t kMostBytes = uint64_t{16} << 20;

std::string Name(const Endpoint& e) {
  return absl::StrCat(e.host, ":", e.port);
}

Request MakeRequest(const Endpoint& to, const std::string& path,
                    std::string body) {
  Request request(http::verb::post, path, 11);
  request.set(http::field::host, Name(to));
  request.set(http::field::content_type, "application/json");
  request.body() = std::move(body);
  request.prepare_payload();
  return request;
}

// True if another member may give a better answer.
bool IsTrouble(const absl::Status& s) {
  return absl::IsUnavailable(s) || absl::IsDeadlineExceeded(s) ||
         absl::IsInternal(s) || absl::IsUnknown(s);
}

absl::Status CannotReach(const Endpoint& to, const error_code& e) {
  return absl::UnavailableError(
      absl::StrCat("etcd at ", Name(to), ": ", e.message()));
}

// Endpoints are numeric, or names that the resolver knows.
asio::awaitable<error_code> Connect(asio::io_context* io, const Endpoint& to,
                                    beast::tcp_stream* stream) {
  asio::ip::tcp::resolver resolver(*io);
  const auto [unresolved, found] =
      co_await resolver.async_resolve(to.host, absl::StrCat(to.port), kTuple);
  if (unresolved) co_return unresolved;
  const auto [failed, at] = co_await stream->async_connect(found, kTuple);
  if (failed) co_return failed;
  error_code ignored;
  stream->socket().set_option(asio::ip::tcp::no_delay(true), ignored);
  co_return failed;
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
  // A stream's errors are nested one level deeper.
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

asio::awaitable<EtcdClient::Answer> EtcdClient::Post(
    Endpoint to, std::string path, std::string body,
    std::chrono::milliseconds limit) {
  Answer answer;
  beast::tcp_stream stream(io_);
  stream.expires_after(limit);
  error_code e = co_await Connect(&io_, to, &stream);
  const Request request = MakeRequest(to, path, std::move(body));
  if (!e) {
    const auto [unsent, sent] =
        co_await http::async_write(stream, request, kTuple);
    e = unsent;
  }
  http::response_parser<http::string_body> parser;
  parser.body_limit(kMostBytes);
  beast::flat_buffer buffer;
  if (!e) {
    const auto [unread, bytes] =
        co_await http::async_read(stream, buffer, parser, kTuple);
    e = unread;
  }
  if (e) {
    answer.transport = CannotReach(to, e);
    co_return answer;
  }
  answer.status = static_cast<int>(parser.get().result_int());
  answer.body = std::move(parser.get().body());
  co_return answer;
}

asio::awaitable<absl::StatusOr<std::string>> EtcdClient::Call(std::string path,
                                                              std::string body,
                                                              size_t first) {
  const auto end = Clock::now() + settings_.whole;
  absl::Status last = absl::UnavailableError("no member of etcd was asked");
  for (size_t i = 0; i < settings_.endpoints.size(); ++i) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - Clock::now());
    if (left.count() <= 0) break;
    const size_t at = (first + i) % settings_.endpoints.size();
    const Endpoint& to = settings_.endpoints[at];
    Answer answer =
        co_await Post(to, path, body, std::min(left, settings_.each));
    last = answer.transport;
    if (last.ok() && answer.status == 200) {
      first_ = at;
      co_return std::move(answer.body);
    }
    if (last.ok()) {
      const absl::Status refusal = ParseError(answer.status, answer.body);
      last = absl::Status(
          refusal.code(),
          absl::StrCat("etcd at ", Name(to), ": ", refusal.message()));
    }
    if (!IsTrouble(last)) co_return last;
  }
  // The next call begins with another member.
  first_ = (first + 1) % settings_.endpoints.size();
  co_return absl::UnavailableError(last.message());
}

absl::Status EtcdClient::CheckCluster(const Header& header) {
  if (cluster_ == 0) cluster_ = header.cluster;
  if (header.cluster == cluster_) return absl::OkStatus();
  ++strangers_;
  // A member that answers for another cluster must not hold this machine up.
  first_ = (first_ + 1) % settings_.endpoints.size();
  return absl::FailedPreconditionError(absl::StrCat(
      "an endpoint belongs to the etcd cluster ", absl::Hex(header.cluster),
      ", not to ", absl::Hex(cluster_),
      " as the others or before; correct etcd in [cluster] of the fleet file"));
}

size_t EtcdClient::FirstToRead() {
  if (Clock::now() < return_at_) return first_;
  return_at_ = Clock::now() + settings_.return_to_first;
  return 0;
}

asio::awaitable<absl::StatusOr<RangeAnswer>> EtcdClient::Range(
    std::string prefix) {
  const absl::StatusOr<std::string> body =
      co_await Call("/v3/kv/range", RangeBody(prefix), FirstToRead());
  if (!body.ok()) co_return body.status();
  absl::StatusOr<RangeAnswer> answer = ParseRange(*body);
  if (!answer.ok()) co_return answer;
  const absl::Status known = CheckCluster(answer->header);
  if (!known.ok()) co_return known;
  co_return answer;
}

asio::awaitable<absl::StatusOr<TxnAnswer>> EtcdClient::Commit(Txn txn) {
  const absl::StatusOr<std::string> body =
      co_await Call("/v3/kv/txn", TxnBody(txn), first_);
  if (!body.ok()) co_return body.status();
  absl::StatusOr<TxnAnswer> answer = ParseTxn(*body);
  if (!answer.ok()) co_return answer;
  const absl::Status known = CheckCluster(answer->header);
  if (!known.ok()) co_return known;
  co_return answer;
}

asio::awaitable<absl::StatusOr<int64_t>> EtcdClient::Grant(int64_t lease,
                                                           int64_t ttl_s) {
  const absl::StatusOr<std::string> body =
      co_await Call("/v3/lease/grant", GrantBody(lease, ttl_s), first_);
  // An earlier try succeeded, but its answer was lost.
  if (absl::IsFailedPrecondition(body.status())) co_return ttl_s;
  if (!body.ok()) co_return body.status();
  const absl::StatusOr<LeaseAnswer> answer = ParseGrant(*body);
  if (!answer.ok()) co_return answer.status();
  const absl::Status known = CheckCluster(answer->header);
  if (!known.ok()) co_return known;
  co_return answer->ttl_s;
}

asio::awaitable<absl::StatusOr<int64_t>> EtcdClient::KeepAlive(int64_t lease) {
  const absl::StatusOr<std::string> body =
      co_await Call("/v3/lease/keepalive", LeaseBody(lease), first_);
  if (!body.ok()) co_return body.status();
  const absl::StatusOr<LeaseAnswer> answer = ParseKeepAlive(*body);
  if (!answer.ok()) co_return answer.status();
  const absl::Status known = CheckCluster(answer->header);
  if (!known.ok()) co_return known;
  if (answer->ttl_s <= 0) co_return absl::NotFoundError("the lease has lapsed");
  co_return answer->ttl_s;
}

asio::awaitable<absl::Status> EtcdClient::Revoke(int64_t lease) {
  const absl::StatusOr<std::string> body =
      co_await Call("/v3/lease/revoke", LeaseBody(lease), first_);
  co_return body.status();
}

}  // namespace fineserve::etcd

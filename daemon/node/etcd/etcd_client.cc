#include "daemon/node/etcd/etcd_client.h"

#include <algorithm>
#include <boost/asio/experimental/as_tuple.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <utility>

#include "absl/strings/str_cat.h"

namespace fineserve::etcd {
namespace {

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
  // One that answers for another cluster does not hold this machine up.
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
  // An earlier try was carried out, and its answer was lost.
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

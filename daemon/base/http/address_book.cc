#include "daemon/base/http/address_book.h"

#include <netdb.h>
#include <netinet/in.h>

#include <boost/asio/experimental/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

namespace fineserve::proxy {
namespace {

namespace asio = boost::asio;

asio::ip::address AddressOf(const sockaddr* from) {
  if (from->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(from);
    return asio::ip::address_v4(ntohl(v4->sin_addr.s_addr));
  }
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(from);
  asio::ip::address_v6::bytes_type bytes;
  std::memcpy(bytes.data(), &v6->sin6_addr, bytes.size());
  return asio::ip::address_v6(bytes, v6->sin6_scope_id);
}

// Resolves `host`. Waits for name servers as long as the system's resolver
// does.
AddressBook::Addresses Resolve(const std::string& host) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_ADDRCONFIG;
  addrinfo* found = nullptr;
  AddressBook::Addresses addresses;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return addresses;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    if (one->ai_family != AF_INET && one->ai_family != AF_INET6) continue;
    addresses.push_back(AddressOf(one->ai_addr));
  }
  freeaddrinfo(found);
  return addresses;
}

}  // namespace

asio::execution_context::id AddressBook::id;

AddressBook::AddressBook(asio::execution_context& context)
    : service(context), io_(static_cast<asio::io_context&>(context)) {
  const std::lock_guard<std::mutex> lock(shelf_->mutex);
  shelf_->book = this;
}

AddressBook& AddressBook::Of(asio::io_context* io) {
  return asio::use_service<AddressBook>(
      static_cast<asio::execution_context&>(*io));
}

void AddressBook::shutdown() {
  const std::lock_guard<std::mutex> lock(shelf_->mutex);
  shelf_->book = nullptr;
}

asio::awaitable<AddressBook::Addresses> AddressBook::Find(std::string host) {
  Entry& entry = entries_[host];  // which stays where it is
  if (Clock::now() >= entry.good_until && !entry.is_looked_up) {
    LookUp(host, &entry);
  }
  if (!entry.addresses.empty() || !entry.is_looked_up) {
    co_return entry.addresses;
  }
  const auto wait = std::make_shared<asio::steady_timer>(io_, kPatience);
  entry.waits.push_back(wait);
  co_await wait->async_wait(asio::experimental::as_tuple(asio::use_awaitable));
  co_return entry.addresses;
}

void AddressBook::Forget(const std::string& host) {
  const auto known = entries_.find(host);
  if (known == entries_.end() || known->second.is_looked_up) return;
  known->second.addresses.clear();
  known->second.good_until = Clock::now();
}

void AddressBook::LookUp(const std::string& host, Entry* entry) {
  entry->is_looked_up = true;
  try {
    std::thread([host, shelf = shelf_] {
      Addresses addresses = Resolve(host);
      const std::lock_guard<std::mutex> lock(shelf->mutex);
      AddressBook* const book = shelf->book;
      if (book == nullptr) return;
      asio::post(book->io_,
                 [book, host, found = std::move(addresses)]() mutable {
                   book->Note(host, std::move(found));
                 });
    }).detach();
  } catch (const std::system_error&) {
    Note(host, {});  // no thread is left
  }
}

void AddressBook::Note(const std::string& host, Addresses addresses) {
  Entry& entry = entries_[host];
  entry.is_looked_up = false;
  entry.good_until = Clock::now() + (addresses.empty() ? kRetry : kFresh);
  // If the lookup failed, keeps the old addresses, which are better than none.
  if (!addresses.empty()) entry.addresses = std::move(addresses);
  for (const auto& wait : std::exchange(entry.waits, {})) {
    if (const auto timer = wait.lock()) timer->cancel();
  }
}

}  // namespace fineserve::proxy

#ifndef DAEMON_BASE_HTTP_ADDRESS_BOOK_H_
#define DAEMON_BASE_HTTP_ADDRESS_BOOK_H_

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace fineserve::proxy {

// The addresses of hosts that are known by name, for one io_context and on its
// thread. Each lookup runs on a separate thread, because it can be neither
// bounded nor cancelled. So it delays no other lookup, and may outlive this
// object. There is at most one lookup per host.
class AddressBook final : public boost::asio::execution_context::service {
 public:
  using Clock = std::chrono::steady_clock;
  using Addresses = std::vector<boost::asio::ip::address>;
  using key_type = AddressBook;
  static boost::asio::execution_context::id id;

  // Heuristics. A lookup does not say how long its result is valid, and a name
  // that was not found should not be looked up again for every request.
  static constexpr std::chrono::seconds kFresh{30};
  static constexpr std::chrono::seconds kRetry{1};
  // Limit on a caller's wait for a lookup; the lookup itself continues after
  // that. It is less than an engine's time to answer /health, so that the two
  // failures can be distinguished.
  static constexpr std::chrono::milliseconds kPatience{1500};

  explicit AddressBook(boost::asio::execution_context& context);

  // Returns the book of `io`, which the first call creates.
  static AddressBook& Of(boost::asio::io_context* io);

  // Returns the addresses of `host`; empty if there are none, or none are known
  // yet. Old addresses are returned while they are looked up again.
  boost::asio::awaitable<Addresses> Find(std::string host);

  // Reports that no server answers at the host's addresses, which may have
  // changed.
  void Forget(const std::string& host);

 private:
  struct Entry {
    Addresses addresses;
    Clock::time_point good_until;
    bool is_looked_up = false;
    // Timers of the callers that wait for the lookup; it cancels them when it
    // ends.
    std::vector<std::weak_ptr<boost::asio::steady_timer>> waits;
  };
  // State that lookups share with the book.
  struct Shelf {
    std::mutex mutex;
    AddressBook* book = nullptr;  // guarded by `mutex`; null: it has gone
  };

  void shutdown() override;
  void LookUp(const std::string& host, Entry* entry);
  void Note(const std::string& host, Addresses addresses);

  boost::asio::io_context& io_;
  std::unordered_map<std::string, Entry> entries_;
  const std::shared_ptr<Shelf> shelf_ = std::make_shared<Shelf>();
};

}  // namespace fineserve::proxy

#endif  // DAEMON_BASE_HTTP_ADDRESS_BOOK_H_

#ifndef BENCH_SOAK_CLIENTS_H_
#define BENCH_SOAK_CLIENTS_H_

#include <array>
#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "bench/soak/soak_site.h"

namespace fineserve::bench {

struct HttpQuestion {
  uint16_t port = 0;  // on 127.0.0.1
  std::string body;   // JSON, for /v1/completions
  std::vector<std::pair<std::string, std::string>> fields;
  // True if the client closes the connection as soon as some part of the answer
  // has arrived.
  bool leaves = false;
};

struct HttpAnswer {
  int status = 0;                   // 0: nothing came
  std::string reason, retry_after;  // of a refusal's header
  std::string body;                 // as far as it came
  std::string error;                // why it is not whole; empty if it is
  bool timed_out = false;
};

// Posts on a new connection, reads the whole answer, and closes the connection.
// `limit` bounds all of this. Never throws.
boost::asio::awaitable<HttpAnswer> Post(HttpQuestion question,
                                        std::chrono::seconds limit);

// How a request ended, if that end is permitted.
enum class Ending : size_t {
  kRight,   // 200, and every token is what the model must answer
  kLate,    // 429 with Retry-After: it cannot make its SLO
  kNone,    // 503 with Retry-After: no daemon, or no engine
  kBroken,  // 502, or an answer that broke off: its engine was killed
  kLeft,    // it was the client that went away
};
inline constexpr size_t kEndings = 5;

struct ClientFigures {
  std::array<uint64_t, kEndings> ended = {};
  double longest_s = 0;  // from the question to the end of its answer

  uint64_t Count(Ending ending) const {
    return ended[static_cast<size_t>(ending)];
  }
  void Add(const ClientFigures& other);
};

// Clients of tinyserve's models, on a separate thread. Each asks repeatedly,
// for a stream or for a whole answer, at one of the proxies, and compares the
// answer with the expected one. The public functions are for the thread that
// created this object.
class Clients {
 public:
  // Limit on the time of a request while no process is stopped.
  static constexpr std::chrono::seconds kLimit{35};

  // Reports errors as faults of `site`, which must outlive this object.
  Clients(SoakSite* site, std::vector<std::string> models,
          std::vector<uint16_t> ports, std::chrono::seconds limit,
          uint64_t seed);
  Clients(const Clients&) = delete;
  Clients& operator=(const Clients&) = delete;
  ~Clients();

  // Between these two calls, the engine of `model` may break off its answers.
  void EngineDies(const std::string& model) { ++unrest_.at(model); }
  void EngineServes(const std::string& model) { ++unrest_.at(model); }

  // Makes the clients stop asking; all their requests have ended when this
  // returns.
  void Rest();
  void GoOn() { resting_ = false; }
  // Asks until the answer is right; false, after reporting a failure, if no
  // answer is. The clients must rest.
  bool Serves(const std::string& model, uint16_t port);

  ClientFigures figures() const { return figures_; }  // while they rest

 private:
  struct Question {
    std::string model, prompt;
    uint32_t number, tokens;
    bool stream, leaves, patient;
    uint16_t port;
  };

  boost::asio::awaitable<void> BeClient(uint64_t seed);
  // Returns the request's end. Returns null, and reports a failure, if that end
  // is not permitted.
  boost::asio::awaitable<absl::optional<Ending>> AskOnce(Question question);
  absl::optional<Ending> Judge(const Question& question,
                               const HttpAnswer& answer, bool unrest);
  Question Next(std::mt19937_64* random);
  absl::optional<Ending> EndingOf(const Question& question,
                                  const HttpAnswer& answer, bool unrest,
                                  std::string* wrong) const;
  boost::asio::awaitable<void> Sleep(std::chrono::milliseconds time);

  SoakSite& site_;
  const std::vector<std::string> models_;
  const std::vector<uint16_t> ports_;
  const std::chrono::seconds limit_;
  // By model: odd while its engine may break off answers.
  std::map<std::string, std::atomic<uint32_t>> unrest_;
  std::atomic<bool> resting_ = false, ending_ = false;
  std::atomic<int> flying_ = 0;
  uint32_t asked_ = 0;
  ClientFigures figures_;
  boost::asio::io_context context_{1};
  std::thread thread_;
};

}  // namespace fineserve::bench

#endif  // BENCH_SOAK_CLIENTS_H_

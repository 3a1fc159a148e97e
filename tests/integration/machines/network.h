#ifndef TESTS_INTEGRATION_MACHINES_NETWORK_H_
#define TESTS_INTEGRATION_MACHINES_NETWORK_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kernels/driver/descriptor.h"
#include "tests/integration/site.h"

namespace fineserve::integration {

// The network between machines: reads each IPv4 packet that one machine sends
// to another from the sender's TUN device, and delivers it late, damaged or
// never, as configured. Not every kernel has tc's netem.
class PacketSwitch {
 public:
  struct Weather {
    std::chrono::milliseconds delay{0};  // one way
    double loss = 0;                     // of all packets
    // Share of the TCP segments with data to or from this port in which a byte
    // is changed and the checksum still fits, as if by a man in the middle.
    double garbled = 0;
    uint16_t garbled_port = 0;
  };

  // Machine i, whose device is machines[i], has the address 10.93.0.(i + 1).
  explicit PacketSwitch(std::vector<driver::Descriptor> machines);
  PacketSwitch(const PacketSwitch&) = delete;
  PacketSwitch& operator=(const PacketSwitch&) = delete;
  ~PacketSwitch();

  void SetWeather(const Weather& weather);
  // Sets the link's state. Packets from and to a machine whose link is down
  // vanish.
  void SetLink(size_t machine, bool up);
  uint64_t garbled() const { return garbled_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Packet {
    Clock::time_point due;
    size_t to;
    std::string bytes;
  };

  void Run();
  void TakeFrom(size_t machine);
  void Deliver();
  int MillisecondsToNext() const;
  bool Happens(double probability);

  const std::vector<driver::Descriptor> machines_;
  std::mutex mutex_;  // of the two below
  Weather weather_;
  std::vector<bool> is_up_;
  // Confined to the thread. Ordered by due time, except where a delay was made
  // shorter.
  std::deque<Packet> on_their_way_;
  std::mt19937 random_{1};
  std::atomic<uint64_t> garbled_{0};
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

// One network namespace for each machine; they reach each other only by a
// switch. The namespaces end with this object.
class Network {
 public:
  // Returns in one line why this process cannot have a network; empty if it
  // can.
  static std::string Trouble();

  explicit Network(int machines);

  // Returns the command line that runs `command` on that machine.
  std::vector<std::string> On(int machine,
                              const std::vector<std::string>& command) const;
  // Runs `act` in a thread on that machine; threads that `act` starts are on
  // that machine as well. Returns when `act` has returned.
  void InThreadOn(int machine, const std::function<void()>& act) const;
  PacketSwitch* between() { return &*switch_; }

  static std::string Host(int machine);

 private:
  // Returns a process that holds a new namespace.
  static std::unique_ptr<Process> NewNamespace();
  static std::string PathOf(const Process& holder);
  static bool Run(const Process& holder,
                  const std::vector<std::string>& command);

  std::vector<std::unique_ptr<Process>> machines_;
  std::optional<PacketSwitch> switch_;
};

}  // namespace fineserve::integration

#endif  // TESTS_INTEGRATION_MACHINES_NETWORK_H_

#ifndef TESTS_INTEGRATION_MACHINES_NETWORK_H_
#define TESTS_INTEGRATION_MACHINES_NETWORK_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/integration/machines/packet_switch.h"
#include "tests/integration/process.h"

namespace fineserve::integration {

// Network namespaces of their own, as many as machines, which reach each other
// by a switch and nothing else. They end with this object.
class Network {
 public:
  // Why this process cannot have one, in one line; empty if it can.
  static std::string Trouble();

  explicit Network(int machines);

  // The command as it runs on that machine.
  std::vector<std::string> On(int machine,
                              const std::vector<std::string>& command) const;
  // Runs `act` in a thread on that machine; threads that it starts are there
  // as well. Returns when `act` has.
  void InThreadOn(int machine, const std::function<void()>& act) const;
  PacketSwitch* between() { return &*switch_; }

  static std::string Host(int machine);

 private:
  // A process whose namespace it is.
  static std::unique_ptr<Process> NewNamespace();
  static std::string PathOf(const Process& holder);
  static bool Run(const Process& holder,
                  const std::vector<std::string>& command);

  std::vector<std::unique_ptr<Process>> machines_;
  std::optional<PacketSwitch> switch_;
};

}  // namespace fineserve::integration

#endif  // TESTS_INTEGRATION_MACHINES_NETWORK_H_

// fineserve-node: represents a machine in a fleet of several machines.

#include <signal.h>
#include <stdio.h>
#include <systemd/sd-daemon.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <string>
#include <utility>

#include "daemon/base/clock/clock.h"
#include "daemon/base/log/log.h"
#include "daemon/node/node.h"
#include "daemon/node/options.h"

namespace fineserve::node {
namespace {

int Fail(const absl::Status& s, int code) {
  fprintf(stderr, "fineserve-node: %s\n", std::string(s.message()).c_str());
  return code;
}

int Run(int argc, char** argv) {
  const absl::variant<Options, int> parsed = ParseOptions(argc, argv);
  if (const int* code = absl::get_if<int>(&parsed)) return *code;
  const auto& options = absl::get<Options>(parsed);
  absl::StatusOr<Node::Setup> setup = ReadSetup(options);
  if (!setup.ok()) return Fail(setup.status(), 2);
  if (options.check_only) return 0;
  log::Begin("fineserve-node", options.log_level);
  const RealClock clock;
  boost::asio::io_context io(1);
  boost::asio::signal_set signals(io, SIGTERM, SIGINT);
  const std::string name = setup->machine.name;
  Node node(&io, *std::move(setup), &clock);
  signals.async_wait([&](const boost::system::error_code& e, int) {
    if (!e) node.Stop();
  });
  node.Start();
  log::Info("machine {}", name);
  sd_notify(0, "READY=1");
  io.run();
  return 0;
}

}  // namespace
}  // namespace fineserve::node

int main(int argc, char** argv) {
  // The log's reader may exit first.
  signal(SIGPIPE, SIG_IGN);
  return fineserve::node::Run(argc, argv);
}

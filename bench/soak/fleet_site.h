#ifndef BENCH_SOAK_FLEET_SITE_H_
#define BENCH_SOAK_FLEET_SITE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/soak/failures.h"
#include "bench/soak/soak_site.h"

namespace fineserve::bench {

// The whole service on one pool: a fineserved that admits, proxies, two
// tinyserve engines of different formats that serve one model each, and two
// engines without clients: one with a view that takes and frees blocks at
// random, and one with whole slabs, which holds its data until it is asked for
// it. Confined to one thread.
class FleetSite {
 public:
  static constexpr size_t kEngines = 4;
  static constexpr size_t kServing = 2;  // the first of them have a model
  static std::vector<std::string> Models() { return {"wide", "deep"}; }

  // `ports` has one port for each engine that serves. `without_daemon` is as in
  // the fleet file.
  FleetSite(const std::string& name, std::array<uint16_t, kServing> ports,
            std::string without_daemon, Failures* failures);

  // The functions below report a failure and return false if something does not
  // start.
  bool StartAll(size_t proxies);
  bool StartDaemon();
  bool StartEngine(size_t engine);  // in the place of one that has ended

  SoakSite& site() { return site_; }
  Process& engine(size_t engine) { return *engines_[engine]; }
  Process& proxy(size_t proxy) { return *proxies_[proxy]; }
  const std::vector<uint16_t>& ports() const { return ports_; }

  // Checks that all engines live, and that the one that holds data still has
  // it.
  bool EnginesAreWell();
  // Waits until the daemon has no request in its books.
  bool AwaitNoRequests();
  // Ends all engines; the pool must then be empty.
  bool EndEngines();

 private:
  void WriteFleet(const std::array<uint16_t, kServing>& ports,
                  const std::string& without_daemon);
  bool StartProxy();
  std::string fleet_path() const { return site_.folder() + "/fleet.toml"; }

  SoakSite site_;
  const std::array<uint16_t, kServing> engine_ports_;
  std::array<std::unique_ptr<Process>, kEngines> engines_;
  std::vector<std::unique_ptr<Process>> proxies_;
  std::vector<uint16_t> ports_;  // of the proxies
  int verified_ = 0;             // times that the holder's data was right
  uint64_t started_ = 0;         // engines
};

}  // namespace fineserve::bench

#endif  // BENCH_SOAK_FLEET_SITE_H_

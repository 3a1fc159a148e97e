#ifndef TESTS_INTEGRATION_SERVING_SERVING_SITE_H_
#define TESTS_INTEGRATION_SERVING_SERVING_SITE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/integration/serving/tiny_engine.h"
#include "tests/integration/site.h"

namespace fineserve::integration {

// The whole service of real processes: fineserve-proxy in front of tinyserve
// engines on the pool of one daemon, which handles admission. The test starts
// the engines.
class ServingSite : public Site {
 protected:
  // An engine, with a model of the same name unless the engine is another one's
  // replica.
  struct Served {
    std::string name;
    int kv_token_bytes;
    uint16_t port;
    std::vector<std::string> command = {};  // of fsctl up
    std::string prompt_tokens = "estimate";
    std::string gpu = {};
    double target_rate = 0;
    std::string replica_of = {};  // a model above
    int max_batch = 64;           // of the model
    int evict_after_s = 0;        // without a request
    bool on_request = false;      // started so, and never evicted
    int stop_after_s = 0;
    bool scaled = false;  // by an autoscaler, which the test plays
  };

  // Describes for fsctl up a tinyserve that has a separate model with 64 MiB of
  // weights. `more`: further flags.
  Served TinyserveOf(const std::string& name,
                     const std::vector<std::string>& more = {}) const;

  // Starts a tinyserve under the preload, with `flags`, that serves a model of
  // the same name.
  std::unique_ptr<TinyEngine> StartTiny(const std::string& name, uint16_t port,
                                        const std::string& flags,
                                        Process::Environment more = {}) const;

  // `without_daemon` as in the file.
  void WriteFleet(const std::vector<Served>& fleet,
                  const std::string& without_daemon);
  // A pool of 8 slabs of 8 MiB.
  void StartDaemonOfFleet(const std::vector<std::string>& more = {});
  // fsctl up of the fleet.
  std::unique_ptr<Process> LaunchUp(
      const std::vector<std::string>& flags = {}) const;
  // Starts the proxy and waits until the daemon decides for it. `flags`:
  // further words of its command line.
  void StartProxy(const std::vector<std::string>& flags = {});

  const std::string& fleet_path() const { return fleet_path_; }
  uint16_t port() const { return port_; }  // of the proxy
  uint16_t admin_port() const { return admin_port_; }

  std::unique_ptr<Process> daemon_, proxy_;

 private:
  const std::string fleet_path_ = folder() + "/fleet.toml";
  uint16_t port_ = 0;
  uint16_t admin_port_ = 0;
};

}  // namespace fineserve::integration

#endif  // TESTS_INTEGRATION_SERVING_SERVING_SITE_H_

#ifndef TESTS_INTEGRATION_VIEWS_VIEW_SITE_H_
#define TESTS_INTEGRATION_VIEWS_VIEW_SITE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/integration/site.h"

namespace fineserve::integration {

// Engines with views of one pool: real processes, real kills.
//
// "packed" has one plane and pages that divide no slab (33,792 bytes), "layers"
// four planes of 65,536 bytes: a slab of 8 MiB holds 248 blocks of one (a
// straddling block less in most slabs) and 32 of the other.
class ViewTest : public Site {
 protected:
  using Engine = std::unique_ptr<Process>;
  static constexpr uint32_t kLayersBlocks = 32;  // of a slab
  static constexpr uint32_t kPackedBlocks = 247;

  Engine StartPool();
  // Writes the configuration file that StartFromFile's daemon reads.
  void SetPool(int mib);
  Engine StartFromFile();
  Engine Launch(const std::vector<std::string>& arguments,
                const Process::Environment& more = {});
  // Launches an engine and waits until it is ready.
  Engine Start(const std::vector<std::string>& arguments,
               const Process::Environment& more = {});
  static std::vector<std::string> Packed(
      const std::vector<std::string>& more = {});
  static std::vector<std::string> Layers(
      const std::vector<std::string>& more = {});

  static uint64_t Stat(Process& engine, const std::string& name) {
    return static_cast<uint64_t>(stage::FigureIn(engine.Ask("stats"), name));
  }
  // Makes the engine look at its leases until it has at least `slabs` slabs,
  // and none that it was asked to return.
  static bool Gets(Process& engine, uint64_t slabs);
  // Makes the engine allocate blocks as soon as it can: slabs leased in between
  // can be used from the next step on; slabs of a pool that grew, from the step
  // after the view's keeper has mapped them.
  static void Take(Process& engine, uint32_t blocks);
  // Makes the engine take blocks, check their content, write them and read them
  // back. `scan`: what blocks may hold, with "nanscan" zeros, with "scan" also
  // what this engine wrote there.
  static void Use(Process& engine, uint32_t blocks,
                  const std::string& scan = "nanscan");
  static void Want(Process& engine, uint32_t blocks);
  static void ExpectEnd(Process& engine);
};

}  // namespace fineserve::integration

#endif  // TESTS_INTEGRATION_VIEWS_VIEW_SITE_H_

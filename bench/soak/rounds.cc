#include "bench/soak/rounds.h"

#include <string>

#include "bench/soak/interrupt.h"

namespace fineserve::bench {
namespace {

bool ComesToRest(FleetSite* fleet, Clients* clients) {
  clients->Rest();
  const bool well = fleet->EnginesAreWell() && fleet->AwaitNoRequests() &&
                    fleet->site().AwaitNoQuarantine();
  if (!well) return false;
  for (const std::string& model : FleetSite::Models()) {
    for (const uint16_t port : fleet->ports()) {
      if (!clients->Serves(model, port)) return false;
    }
  }
  clients->GoOn();
  return true;
}

}  // namespace

ClientFigures RunRounds(FleetSite* fleet, size_t proxies,
                        std::chrono::seconds limit, uint64_t seed,
                        uint64_t rounds, Progress* progress,
                        const std::function<bool(Clients*)>& trouble) {
  if (!fleet->StartAll(proxies)) return {};
  Clients clients(&fleet->site(), FleetSite::Models(), fleet->ports(), limit,
                  seed);
  bool well = true;
  for (uint64_t i = 0; well && i < rounds && !Interrupted(); ++i) {
    well = trouble(&clients) && ComesToRest(fleet, &clients);
    progress->Add(1);
  }
  clients.Rest();
  const ClientFigures figures = clients.figures();
  if (well) fleet->EndEngines();
  return figures;
}

}  // namespace fineserve::bench

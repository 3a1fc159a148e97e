#ifndef SHIM_REDIRECT_ENGINE_ANCESTOR_H_
#define SHIM_REDIRECT_ENGINE_ANCESTOR_H_

namespace fineserve::shim {

// True if this process was started, directly or through other processes, by an
// engine whose block pool uses leased blocks, as the engine scoreboard of that
// ancestor shows. Takes some 100 µs.
bool HasEngineAncestor();

}  // namespace fineserve::shim

#endif  // SHIM_REDIRECT_ENGINE_ANCESTOR_H_

#ifndef SHIM_REDIRECT_ENGINE_ANCESTOR_H_
#define SHIM_REDIRECT_ENGINE_ANCESTOR_H_

namespace fineserve::shim {

// True if this process was started by an engine whose block pool uses leased
// blocks: a parent, or a parent's parent, whose engine scoreboard says so.
// Takes some 100 µs.
bool HasEngineAncestor();

}  // namespace fineserve::shim

#endif  // SHIM_REDIRECT_ENGINE_ANCESTOR_H_

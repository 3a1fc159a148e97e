#ifndef SHIM_HOST_ENVIRONMENT_H_
#define SHIM_HOST_ENVIRONMENT_H_

// The environment variables that the shim reads.
//
//   FINESERVE_DISABLE=1      hooks pass straight to the driver
//   FINESERVE_KV_SIZES=...   sizes of KV allocations, e.g. 64MiB,67108864
//                            (spelled as in daemon/contract/abi/byte_size.h);
//                            they replace those that the daemon declares
//   FINESERVE_KEEP_DEEPBIND=1  dlopen keeps RTLD_DEEPBIND (loader_filters.h)
//   FINESERVE_VIEW=required  the process was started for a view of the pool and
//                            must not run without one (fineserve_kv.h)
//   FINESERVE_EVICT=auto     the engine's large allocations may leave the GPU
//                            and come back (design note 0039); else they stay
//   FINESERVE_ENGINE=name    the engine that this process belongs to
//   FINESERVE_RUNTIME_DIR    see daemon/contract/abi/socket_path.h

#include "daemon/contract/abi/messages.h"

namespace fineserve::shim {

// Safe on any thread at any time. Disabled() reads the environment once.
bool Disabled();
bool KeepDeepbind();
bool ViewRequired();
// Reads the environment once.
bool EvictionWanted();

// The names by which the daemon knows this process: the name of its engine
// ($FINESERVE_ENGINE, else "<comm>-<pid>") and the executable's short name.
void EngineName(char (&out)[abi::kNameBytes]);
void ProgramName(char (&out)[abi::kNameBytes]);

}  // namespace fineserve::shim

#endif  // SHIM_HOST_ENVIRONMENT_H_

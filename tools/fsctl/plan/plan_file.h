#ifndef TOOLS_FSCTL_PLAN_PLAN_FILE_H_
#define TOOLS_FSCTL_PLAN_PLAN_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "daemon/scheduling/global/model/snapshot.h"

namespace fineserve::config {

// Reads what `fsctl plan` plans from a TOML file. An example with every key:
//
//   [[gpu]]
//   name = "gpu"                     # with count: gpu-0 … gpu-7
//   node = "node-a"                  # a TP group is within one
//   memory = "80GiB"
//   taken = "600MiB"                 # by others than the engines
//   count = 8
//
//   [[node]]                         # optional
//   name = "node-a"
//   host = "1TiB"                    # that processes and the store may use
//
//   [[profile]]
//   architecture = "llama-3.1-8b"
//   quantisation = "fp16"
//   tp = 1
//   weights = "15317MiB"             # of all its GPUs together
//   activations = "140MiB"
//   kv_token_bytes = 131072
//   points = [                       # batch, prompt tokens, TTFT and TPOT in s
//     [1, 256, 0.0123, 0.0080], [32, 256, 0.1921, 0.0093],
//   ]
//   file = "llama.toml"              # fsctl profile's; says what is not here
//
//   [[model]]
//   name = "chat"
//   architecture = "llama-3.1-8b"
//   quantisation = "fp16"
//   tp = 1
//   rate = 2.5                       # requests/s
//   prompt_tokens = 242              # means
//   output_tokens = 327
//   slo_ttft_ms = 800
//   slo_tpot_ms = 60                 # optional, as all that follow
//   floor = "2GiB"                   # of KV
//   max_batch = 256
//   replicas = 2                     # else as many as rate and SLO need
//   may_share = false                # whether replicas may share a GPU
//   pins = ["gpu-0", "gpu-1"]
//   groups = [["gpu-0", "gpu-1"]]    # the only ones for its replicas
//   context = "524MiB"               # that an engine keeps on each GPU
//   process = "6GiB"                 # host memory of an engine's processes
//   may_rest = true                  # whether places that are off rest
//
//   [[placed]]                       # what runs now
//   model = "chat"
//   gpus = ["gpu-0"]
//
// Errors are InvalidArgument with one line "FILE:LINE: what is wrong; the fix",
// and as CheckSnapshot's; NotFound if the file cannot be read.
absl::StatusOr<plan::Snapshot> ReadPlanFile(const std::string& path);

}  // namespace fineserve::config

#endif  // TOOLS_FSCTL_PLAN_PLAN_FILE_H_

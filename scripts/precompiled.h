#ifndef SCRIPTS_PRECOMPILED_H_
#define SCRIPTS_PRECOMPILED_H_

// The headers that nearly every library of ours includes, parsed once per
// preset. Files must still include what they use: the release preset and
// clang-tidy do not use this header.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"

#endif  // SCRIPTS_PRECOMPILED_H_

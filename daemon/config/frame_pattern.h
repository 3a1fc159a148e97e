#ifndef DAEMON_CONFIG_FRAME_PATTERN_H_
#define DAEMON_CONFIG_FRAME_PATTERN_H_

#include <string>

#include "absl/status/statusor.h"

namespace fineserve::config {

// Turns the name of a function, as a user writes it in a rule, into a symbol
// pattern (daemon/abi/rule.h): names are compared mangled, because demangling
// allocates and the shim must not.
//
//   foo                    the C function foo, or a C++ function of that name
//                          in whatever namespace
//   a::b                   the function (or class) b of a; more of them before
//                          and behind: "a::b" also finds x::a::b(int)
//   a::a, a::~a            constructors, destructor
//   al*::b                 '*' in a component: any characters
//   _ZN...                 beginning with _Z: mangled already, '*' allowed
//
// Itanium C++ ABI, §5.1.3: a nested name is a sequence of <length><identifier>,
// a constructor C1 C2 or C3, a destructor D0 D1 or D2. A component with a '*'
// is searched without its length.
//
// InvalidArgument, with the fix, for anything else (arguments, templates'
// angle brackets, blanks) and for what is too long for abi::kPatternBytes.
absl::StatusOr<std::string> SymbolPattern(const std::string& function);

}  // namespace fineserve::config

#endif  // DAEMON_CONFIG_FRAME_PATTERN_H_

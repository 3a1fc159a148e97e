#ifndef SHIM_HOST_WARN_H_
#define SHIM_HOST_WARN_H_

namespace fineserve::shim {

// Writes "fineserve: <text>\n" to standard error with one write(2), so that
// lines of several processes do not mix. printf-like; a text that is too long
// is cut. Keeps errno, takes no lock and allocates nothing. Safe on any thread.
void Warn(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace fineserve::shim

#endif  // SHIM_HOST_WARN_H_

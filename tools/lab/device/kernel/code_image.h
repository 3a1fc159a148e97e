#ifndef TOOLS_LAB_DEVICE_KERNEL_CODE_IMAGE_H_
#define TOOLS_LAB_DEVICE_KERNEL_CODE_IMAGE_H_

namespace fineserve::emucuda {

// True if `code` begins like something that a driver can load: a fat binary of
// the known version (or nvcc's wrapper around one), a 64-bit ELF image for CUDA
// devices, or PTX text, whose first directive is its version. Like the driver's
// functions, this one does not know how long the image is, and reads only as
// far as necessary.
bool LooksLikeCode(const void* code);

// How many bytes at the start of a file suffice for LooksLikeCode; a shorter
// file must be padded with zeros.
inline constexpr int kCodeHeaderBytes = 4096;

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_KERNEL_CODE_IMAGE_H_

// The image that kernel_set.cc hands to the driver. Without nvcc it is a module
// without kernels: the emulated device runs ours by their names, and a real one
// finds none.

	.section .rodata
	.balign 16
	.globl fineserve_device_image
	.type fineserve_device_image, %object
fineserve_device_image:
#ifdef FINESERVE_FATBIN
	.incbin FINESERVE_FATBIN
#else
	.ascii ".version 7.0\n.target sm_75\n.address_size 64\n"
#endif
	.byte 0
	.size fineserve_device_image, . - fineserve_device_image
	.section .note.GNU-stack, "", %progbits

// void* dlsym(void* handle, const char* name)
// void* dlvsym(void* handle, const char* name, const char* version)
// void* dlopen(const char* file, int flags)
// void* dlmopen(Lmid_t space, const char* file, int flags)
//
// A C function here would become the caller that glibc sees: RTLD_NEXT would
// then search after the shim instead of after the program's library, and dlopen
// would search the shim's RUNPATH instead of the caller's. So each stub calls
// its filter, with the return address as fourth argument, restores registers
// and stack, and jumps to the real function.
//
// For each processor:
//   FINESERVE_LOOKUP_STUB: the filter answers in its first result, with the
//     second not 0, or leaves the call to the real function.
//   FINESERVE_OPEN_STUB: the filter returns the flags that the real function
//     gets in `register`.

    .macro FINESERVE_BEGIN symbol, filter, real
    .globl  \symbol
    .type   \symbol, %function
    .hidden \filter
    .hidden \real
    .p2align 4
\symbol:
    .cfi_startproc
    .endm

    .macro FINESERVE_END symbol
    .cfi_endproc
    .size   \symbol, .-\symbol
    .endm

#if defined(__x86_64__)

#define SECOND_ARGUMENT %esi
#define THIRD_ARGUMENT %edx

    .macro FINESERVE_ENTER symbol, filter, real
    FINESERVE_BEGIN \symbol, \filter, \real
    endbr64
    pushq   %rdi
    .cfi_adjust_cfa_offset 8
    pushq   %rsi
    .cfi_adjust_cfa_offset 8
    // After three pushes and the return address the stack is aligned to 16
    // bytes.
    pushq   %rdx
    .cfi_adjust_cfa_offset 8
    movq    24(%rsp), %rcx
    call    \filter
    .endm

    .macro FINESERVE_RESTORE
    popq    %rdx
    .cfi_adjust_cfa_offset -8
    popq    %rsi
    .cfi_adjust_cfa_offset -8
    popq    %rdi
    .cfi_adjust_cfa_offset -8
    .endm

    .macro FINESERVE_LOOKUP_STUB symbol, filter, real
    FINESERVE_ENTER \symbol, \filter, \real
    movq    %rdx, %rcx
    FINESERVE_RESTORE
    testq   %rcx, %rcx
    jnz     1f
    jmp     *\real(%rip)
1:
    ret
    FINESERVE_END \symbol
    .endm

    .macro FINESERVE_OPEN_STUB symbol, filter, real, register
    FINESERVE_ENTER \symbol, \filter, \real
    FINESERVE_RESTORE
    movl    %eax, \register
    jmp     *\real(%rip)
    FINESERVE_END \symbol
    .endm

#elif defined(__aarch64__)

#define SECOND_ARGUMENT w1
#define THIRD_ARGUMENT w2

    .macro FINESERVE_ENTER symbol, filter, real
    FINESERVE_BEGIN \symbol, \filter, \real
    hint    #34  // bti c
    stp     x29, x30, [sp, #-48]!
    .cfi_def_cfa_offset 48
    .cfi_offset 29, -48
    .cfi_offset 30, -40
    mov     x29, sp
    stp     x0, x1, [sp, #16]
    str     x2, [sp, #32]
    mov     x3, x30
    bl      \filter
    .endm

    // Keeps x0 and x1.
    .macro FINESERVE_LEAVE
    ldp     x29, x30, [sp], #48
    .cfi_restore 29
    .cfi_restore 30
    .cfi_def_cfa_offset 0
    .endm

    .macro FINESERVE_JUMP real
    adrp    x16, \real
    ldr     x16, [x16, :lo12:\real]
    br      x16
    .endm

    .macro FINESERVE_LOOKUP_STUB symbol, filter, real
    FINESERVE_ENTER \symbol, \filter, \real
    ldr     x2, [sp, #32]
    cbnz    x1, 1f
    ldp     x0, x1, [sp, #16]
    .cfi_remember_state
    FINESERVE_LEAVE
    FINESERVE_JUMP \real
1:
    .cfi_restore_state
    FINESERVE_LEAVE
    ret
    FINESERVE_END \symbol
    .endm

    .macro FINESERVE_OPEN_STUB symbol, filter, real, register
    FINESERVE_ENTER \symbol, \filter, \real
    mov     w17, w0
    ldp     x0, x1, [sp, #16]
    ldr     x2, [sp, #32]
    mov     \register, w17
    FINESERVE_LEAVE
    FINESERVE_JUMP \real
    FINESERVE_END \symbol
    .endm

#else
#error "this processor has no stubs for the loader's functions"
#endif

    .text
    FINESERVE_LOOKUP_STUB dlsym, fineserve_filter_dlsym, fineserve_real_dlsym
    FINESERVE_LOOKUP_STUB dlvsym, fineserve_filter_dlvsym, fineserve_real_dlvsym
    FINESERVE_OPEN_STUB dlopen, fineserve_filter_dlopen, fineserve_real_dlopen, SECOND_ARGUMENT
    FINESERVE_OPEN_STUB dlmopen, fineserve_filter_dlmopen, fineserve_real_dlmopen, THIRD_ARGUMENT
    .section .note.GNU-stack, "", %progbits

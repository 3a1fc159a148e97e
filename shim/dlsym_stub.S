// void* dlsym(void* handle, const char* name)
// void* dlvsym(void* handle, const char* name, const char* version)
//
// A C function here would become the caller that glibc sees: RTLD_NEXT would
// then search behind the shim instead of behind the program's library. So ask
// the filter, with the return address as its fourth argument, and unless it
// answers leave by a jump with registers and stack as they came.

    .macro FINESERVE_STUB symbol, filter, real
    .globl  \symbol
    .type   \symbol, @function
    .hidden \filter
    .hidden \real
    .p2align 4
\symbol:
    .cfi_startproc
    endbr64
    pushq   %rdi
    .cfi_adjust_cfa_offset 8
    pushq   %rsi
    .cfi_adjust_cfa_offset 8
    // Three pushes and the return address: the stack is at 16 bytes again.
    pushq   %rdx
    .cfi_adjust_cfa_offset 8
    movq    24(%rsp), %rcx
    call    \filter
    movq    %rdx, %rcx
    popq    %rdx
    .cfi_adjust_cfa_offset -8
    popq    %rsi
    .cfi_adjust_cfa_offset -8
    popq    %rdi
    .cfi_adjust_cfa_offset -8
    testq   %rcx, %rcx
    jnz     1f
    jmp     *\real(%rip)
1:
    ret
    .cfi_endproc
    .size   \symbol, .-\symbol
    .endm

    .text
    FINESERVE_STUB dlsym, fineserve_filter_dlsym, fineserve_real_dlsym
    FINESERVE_STUB dlvsym, fineserve_filter_dlvsym, fineserve_real_dlvsym
    .section .note.GNU-stack, "", @progbits

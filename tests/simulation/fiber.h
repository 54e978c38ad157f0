/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fiber.h - stacks that take turns on one thread of the system.
 *
 * AddressSanitizer knows one stack of each thread: it is told when another one takes its place.
 */
#ifndef FIBER_H
#define FIBER_H

#include <dlfcn.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <ucontext.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#define FIBER_STACK (512u << 10)

/* That of the stack that a program begins with is zero before the first turn of another one. */
struct fiber {
    ucontext_t context; /* of the first turn; */
    jmp_buf at;         /* of the others, as to change the context asks the kernel for the mask of signals */
    bool begun;
    const void *stack;
    size_t bytes;
    void *fake; /* where the sanitizer has variables of frames that have returned */
};

/* Its first turn calls body(), which calls fiber_begin() first and never returns. */
static inline void fiber_make(struct fiber *fiber, void (*body)(void))
{
    void *stack = mmap(NULL, FIBER_STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fiber->stack = stack;
    fiber->bytes = FIBER_STACK;
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = stack;
    fiber->context.uc_stack.ss_size = FIBER_STACK;
    makecontext(&fiber->context, body, 0);
}

/* From: the one that had the turn before. */
static inline void fiber_begin(struct fiber *from)
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(NULL, &from->stack, &from->bytes);
#else
    (void)from;
#endif
}

/*
 * Goes on where another one has given the turn away. Neither by the sanitizer's own function, which forgets all that it
 * knows of the other stack, and takes long, nor by one that takes a jump to another stack for an error: by the C
 * library's.
 */
static inline void fiber_jump(struct fiber *to)
{
    static void (*jump)(jmp_buf at, int value);
    if (jump == NULL) {
#ifdef __SANITIZE_ADDRESS__
        void *library = dlopen("libc.so.6", RTLD_LAZY);
#else
        void *library = RTLD_DEFAULT;
#endif
        *(void **)&jump = dlsym(library, "_longjmp");
    }
    jump(to->at, 1);
}

/* Gives the turn to another one, and returns when it is the caller's again. */
static inline void fiber_switch(struct fiber *from, struct fiber *to)
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(&from->fake, to->stack, to->bytes);
#endif
    from->begun = true;
    if (_setjmp(from->at) == 0) {
        if (to->begun) {
            fiber_jump(to);
        }
        setcontext(&to->context);
    }
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(from->fake, NULL, NULL);
#endif
}

/* For one that will have no turn any more. The frames on it may never have ended; other memory comes to its place. */
static inline void fiber_forget(struct fiber *fiber)
{
#ifdef __SANITIZE_ADDRESS__
    __asan_unpoison_memory_region(fiber->stack, fiber->bytes);
#endif
    munmap((void *)fiber->stack, fiber->bytes);
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fiber.h - stacks that take turns on one thread of the system.
 *
 * AddressSanitizer knows one stack of each thread: it is told when another one takes its place.
 */
#ifndef FIBER_H
#define FIBER_H

#include <dlfcn.h>
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
    ucontext_t context;
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

/* Gives the turn to another one, and returns when it is the caller's again. */
#ifdef __SANITIZE_ADDRESS__
static inline void fiber_switch(struct fiber *from, struct fiber *to)
{
    /* Not by the sanitizer's own, which forgets all that it knows of the other stack, and takes long. */
    static int (*swap)(ucontext_t *from, const ucontext_t *to);
    if (swap == NULL) {
        *(void **)&swap = dlsym(dlopen("libc.so.6", RTLD_LAZY), "swapcontext");
    }
    __sanitizer_start_switch_fiber(&from->fake, to->stack, to->bytes);
    swap(&from->context, &to->context);
    __sanitizer_finish_switch_fiber(from->fake, NULL, NULL);
}
#else
static inline void fiber_switch(struct fiber *from, struct fiber *to)
{
    swapcontext(&from->context, &to->context);
}
#endif

/* For one that will have no turn any more. The frames on it may never have ended; other memory comes to its place. */
static inline void fiber_forget(struct fiber *fiber)
{
#ifdef __SANITIZE_ADDRESS__
    __asan_unpoison_memory_region(fiber->stack, fiber->bytes);
#endif
    munmap((void *)fiber->stack, fiber->bytes);
}

#endif

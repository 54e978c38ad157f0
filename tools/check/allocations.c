/* SPDX-License-Identifier: Apache-2.0 */
/*
 * allocations.c - lets one allocation of the plugin fail.
 *
 * The calls that the plugin's own code makes go through its global offset table, where ours take the place of malloc()
 * and its like; those of the libraries that it uses are left alone. A plugin without such calls, or one in C++ whose
 * `new` throws, is left with what it asks of its host.
 */
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tools/check/check.h"

/* ---- counting ---- */

static unsigned made, failing;

static bool fails(void)
{
    bool this = ++made == failing;
    if (this) {
        errno = ENOMEM;
    }
    return this;
}

unsigned bps_check_allocations_fail(unsigned nth)
{
    unsigned count = made;
    made = 0;
    failing = nth;
    return count;
}

static void *our_malloc(size_t bytes)
{
    return fails() ? NULL : malloc(bytes);
}

static void *our_calloc(size_t count, size_t size)
{
    return fails() ? NULL : calloc(count, size);
}

static void *our_realloc(void *memory, size_t bytes)
{
    return fails() ? NULL : realloc(memory, bytes);
}

static void *our_aligned_alloc(size_t align, size_t bytes)
{
    return fails() ? NULL : aligned_alloc(align, bytes);
}

static int our_posix_memalign(void **out, size_t align, size_t bytes)
{
    return fails() ? ENOMEM : posix_memalign(out, align, bytes);
}

static char *our_strdup(const char *text)
{
    return fails() ? NULL : strdup(text);
}

static char *our_strndup(const char *text, size_t n)
{
    return fails() ? NULL : strndup(text, n);
}

static const struct {
    const char *name;
    void (*ours)(void);
} replaced[] = {
    {"malloc", (void (*)(void))our_malloc},
    {"calloc", (void (*)(void))our_calloc},
    {"realloc", (void (*)(void))our_realloc},
    {"aligned_alloc", (void (*)(void))our_aligned_alloc},
    {"posix_memalign", (void (*)(void))our_posix_memalign},
    {"strdup", (void (*)(void))our_strdup},
    {"strndup", (void (*)(void))our_strndup},
};

/* ---- the host's ---- */

static struct bps_host real;

static void *host_alloc(const struct bps_host *host, size_t bytes, size_t align)
{
    return fails() ? NULL : real.alloc(host, bytes, align);
}

static struct bps_watch *host_watch(const struct bps_host *host, int fd, bps_watch_fn fn, void *arg)
{
    return fails() ? NULL : real.watch(host, fd, fn, arg);
}

static struct bps_timer *host_timer(const struct bps_host *host, uint64_t delay_ns, uint64_t period_ns, bps_call_fn fn,
                                    void *arg)
{
    return fails() ? NULL : real.timer(host, delay_ns, period_ns, fn, arg);
}

static struct bps_poller *host_poller(const struct bps_host *host, bool (*poll)(void *arg), bool (*arm)(void *arg),
                                      void *arg)
{
    return fails() ? NULL : real.poller(host, poll, arm, arg);
}

/* ---- the table of the plugin's file ---- */

struct tables {
    const ElfW(Sym) * symbols;
    const char *strings;
    struct {
        const ElfW(Rela) * first;
        size_t bytes;
    } relocations[2];
};

/* The linker has made addresses of the offsets in here, but on some machines. */
static const void *address_of(const struct dl_phdr_info *object, ElfW(Addr) value)
{
    return (const void *)(value < object->dlpi_addr ? object->dlpi_addr + value : value);
}

static struct tables tables_of(const struct dl_phdr_info *object, const ElfW(Dyn) * entry)
{
    struct tables out = {0};
    for (; entry->d_tag != DT_NULL; entry++) {
        switch (entry->d_tag) {
        case DT_SYMTAB:
            out.symbols = address_of(object, entry->d_un.d_ptr);
            break;
        case DT_STRTAB:
            out.strings = address_of(object, entry->d_un.d_ptr);
            break;
        case DT_JMPREL:
            out.relocations[0].first = address_of(object, entry->d_un.d_ptr);
            break;
        case DT_PLTRELSZ:
            out.relocations[0].bytes = entry->d_un.d_val;
            break;
        case DT_RELA:
            out.relocations[1].first = address_of(object, entry->d_un.d_ptr);
            break;
        case DT_RELASZ:
            out.relocations[1].bytes = entry->d_un.d_val;
            break;
        default:
            break;
        }
    }
    return out;
}

/* The whole entry is the address of the function, whatever the machine calls this kind of relocation. */
static void replace_entry(void **entry, void (*ours)(void))
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)entry & ~(page - 1);
    if (mprotect((void *)from, page, PROT_READ | PROT_WRITE) == 0) {
        memcpy(entry, &ours, sizeof ours);
    }
}

static void replace_in(const struct dl_phdr_info *object, const struct tables *tables)
{
    for (size_t list = 0; list < 2; list++) {
        const ElfW(Rela) *row = tables->relocations[list].first;
        size_t count = row != NULL ? tables->relocations[list].bytes / sizeof *row : 0;
        for (size_t i = 0; i < count; i++) {
            const char *name = tables->strings + tables->symbols[ELF64_R_SYM(row[i].r_info)].st_name;
            for (size_t k = 0; k < sizeof replaced / sizeof *replaced && row[i].r_addend == 0; k++) {
                if (strcmp(name, replaced[k].name) == 0) {
                    replace_entry((void **)(object->dlpi_addr + row[i].r_offset), replaced[k].ours);
                }
            }
        }
    }
}

static int look_at(struct dl_phdr_info *object, size_t size, void *path)
{
    (void)size;
    if (strcmp(object->dlpi_name, path) != 0) {
        return 0;
    }
    for (size_t i = 0; i < object->dlpi_phnum; i++) {
        if (object->dlpi_phdr[i].p_type == PT_DYNAMIC) {
            struct tables tables =
                tables_of(object, (const ElfW(Dyn) *)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr));
            replace_in(object, &tables);
        }
    }
    return 1;
}

void bps_check_allocations_watch(struct bps_check *check, struct bps_host *host)
{
    static bool done;
    real = *host;
    host->alloc = host_alloc;
    host->watch = host_watch;
    host->timer = host_timer;
    host->poller = host_poller;
    if (!done) {
        char path[4096];
        snprintf(path, sizeof path, "%s", bps_check_load(check)->path);
        dl_iterate_phdr(look_at, path);
        done = true;
    }
}

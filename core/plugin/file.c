/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file.c - one plugin file: looked at without running its code, and opened.
 */
#include "plugin/file.h"

#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

#include "base/plugin_call.h"
#include "base/report.h"
#include "plugin/check.h"
#include "plugin/search.h"

bps_status bps_file_inspect(const char *path, uint32_t kind, const char *name, struct bps_elf *elf,
                            const struct bps_note_body **note, struct bps_report *report)
{
    int fd;
    bps_status status = bps_code_open(path, &fd, report);

    if (status != BPS_OK) {
        return status;
    }
    status = bps_elf_read(fd, elf, report);
    if (status == BPS_OK) {
        status = bps_note_check(elf, kind, name, note, report);
    }
    close(fd);
    return status;
}

/* ---- the dynamic linker's errors, in our words ----------------------------------------------------------
 */

/* "...: undefined symbol: NAME, version V" or "...: undefined symbol: NAME" */
static bool undefined_symbol(const char *error, const struct bps_elf *elf, struct bps_report *report)
{
    static const char mark[] = "undefined symbol: ";
    const char *symbol = strstr(error, mark);
    int n;

    if (!symbol) {
        return false;
    }
    symbol += sizeof mark - 1;
    n = (int)strcspn(symbol, ", \t\n");
    if (strncmp(symbol, "bps_", 4) == 0) {
        BPS_REPORT(report,
                   "symbol '%.*s' is undefined: a plugin cannot call libbyteps; use what struct bps_host offers", n,
                   symbol);
    } else {
        BPS_REPORT(report,
                   "symbol '%.*s' is undefined: none of the libraries it needs (%s) has it; link the plugin "
                   "with the library that has it, or install the version it was built with",
                   n, symbol, elf->needed[0] ? elf->needed : "none");
    }
    return true;
}

/* "LIBRARY: cannot open shared object file: No such file or directory" */
static bool missing_library(const char *error, struct bps_report *report)
{
    const char *mark = strstr(error, ": cannot open shared object file");

    if (!mark) {
        return false;
    }
    BPS_REPORT(report,
               "library %.*s, which it needs, is not found; install the package that has it, or name its "
               "directory in LD_LIBRARY_PATH",
               (int)(mark - error), error);
    return true;
}

const char *bps_linker_error(const char *path)
{
    const char *error = dlerror();
    size_t n = strlen(path);

    error = error ? error : "unknown error of the dynamic linker";
    return strncmp(error, path, n) == 0 && error[n] == ':' ? error + n + 1 + (error[n + 1] == ' ') : error;
}

static void report_dlerror(const char *path, const struct bps_elf *elf, struct bps_report *report)
{
    const char *error = bps_linker_error(path);

    if (!undefined_symbol(error, elf, report) && !missing_library(error, report)) {
        BPS_REPORT(report, "cannot be loaded: %s", error);
    }
}

/* ---- opening ------------------------------------------------------------------------------------------- */

bps_status bps_file_open(const char *path, const struct bps_elf *elf, const struct bps_module **out,
                         struct bps_report *report)
{
    const struct bps_module *(*entry)(void);
    const struct bps_module *module;
    void *handle, *symbol;

    const struct bps_plugin_names names = {.plugin = path, .instance = ""};
    BPS_IN_PLUGIN(&names, "loading", NULL);
    /* NODELETE: thread-local and driver destructors of a plugin crash a process that has unloaded it. */
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!handle) {
        report_dlerror(path, elf, report);
        return BPS_ERR_PLUGIN;
    }
    symbol = dlsym(handle, "bps_plugin_module");
    if (!symbol) {
        return bps_refuse(report, "function bps_plugin_module is missing; define BPS_PLUGIN_ENTRY(void) and export it");
    }
    memcpy(&entry, &symbol, sizeof entry);
    module = entry();
    if (bps_module_check(module, report) != BPS_OK) {
        return BPS_ERR_PLUGIN;
    }
    *out = module;
    return BPS_OK;
}

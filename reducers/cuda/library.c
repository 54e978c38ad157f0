/* SPDX-License-Identifier: Apache-2.0 */
/* library.c - NVIDIA's libraries: loads one and finds its functions, or says why not. */
#include "library.h"

#include <dlfcn.h>
#include <string.h>

bps_status cuda_library_load(const struct cuda_library *library, void *table, struct bps_report *report)
{
    void *handle = dlopen(library->name, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        const char *reason = dlerror();
        if (strstr(reason, "No such file") != NULL) {
            BPS_REPORT(report, "%s was not found; %s", library->name, library->missing);
        } else {
            BPS_REPORT(report, "%s cannot be loaded: %s", library->name, reason);
        }
        return BPS_ERR_UNSUPPORTED;
    }
    for (size_t i = 0; i < library->count; i++) {
        void *symbol = dlsym(handle, library->functions[i].symbol);
        if (symbol == NULL && !library->functions[i].optional) {
            BPS_REPORT(report, "%s is too old, it has no %s; install %s", library->name, library->functions[i].symbol,
                       library->old);
            return BPS_ERR_UNSUPPORTED;
        }
        memcpy((char *)table + library->functions[i].offset, &symbol, sizeof symbol);
    }
    return BPS_OK;
}

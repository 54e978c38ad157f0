/* SPDX-License-Identifier: Apache-2.0 */
/* place.c - see place.h. */
#include "base/place.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const configured[BPS_PLACES] = {
    PLUGINDIR, PKGPYTHONDIR, PKGPYTHONDIR, MODELDIR, SCRIPTDIR, PKGCONFIGDIR,
};

static char moved[BPS_PLACES][PATH_MAX];
static const char *found[BPS_PLACES];

/* The path below the prefix, "/lib"; NULL: it is elsewhere. */
static const char *below_prefix(const char *path)
{
    size_t n = strlen(INSTALL_PREFIX);
    return strncmp(path, INSTALL_PREFIX, n) == 0 && path[n] == '/' ? path + n : NULL;
}

/* Takes a folder from the end of a path: of "/x/lib/libbyteps.so" and "/usr/lib" is "/x" left. */
static bool strip(char *path, const char *folder)
{
    const char *tail = below_prefix(folder);
    char *slash = strrchr(path, '/');
    if (tail == NULL || slash == NULL) {
        return false;
    }
    *slash = '\0';
    size_t n = strlen(path), m = strlen(tail);
    bool ends = n >= m && strcmp(path + n - m, tail) == 0;
    if (ends) {
        path[n - m] = '\0';
    }
    return ends;
}

/* The prefix by which this library or program is installed where it lies. */
static bool find_prefix(char *prefix)
{
    Dl_info about;
    struct link_map *object;
    if (dladdr1(&moved, &about, (void **)&object, RTLD_DL_LINKMAP) == 0) {
        return false;
    }
    bool is_program = object->l_name[0] == '\0';
    return realpath(is_program ? "/proc/self/exe" : object->l_name, prefix) != NULL &&
           strip(prefix, is_program ? BINDIR : LIBDIR);
}

static bool move(enum bps_place place, const char *prefix)
{
    const char *tail = below_prefix(configured[place]);
    return tail != NULL && snprintf(moved[place], PATH_MAX, "%s%s", prefix, tail) < PATH_MAX;
}

/* A wheel has its prefix in the package: of "/x/byteps/_install" the folder with the package is "/x". */
static bool find_package(const char *prefix)
{
    char path[PATH_MAX];
    return snprintf(path, sizeof path, "%s/../_program.py", prefix) < PATH_MAX && access(path, F_OK) == 0 &&
           snprintf(path, sizeof path, "%s/../..", prefix) < PATH_MAX &&
           realpath(path, moved[BPS_PLACE_PACKAGE]) != NULL;
}

/* All of them are where it lies, or none: a copy of the program alone has its plugins where they were installed. */
static void place_find(void)
{
    char prefix[PATH_MAX];
    bool here = find_prefix(prefix) && move(BPS_PLACE_PLUGINS, prefix) && access(moved[BPS_PLACE_PLUGINS], F_OK) == 0;
    for (uint32_t i = 0; i < BPS_PLACES; i++) {
        found[i] = here && move(i, prefix) ? moved[i] : configured[i];
    }
    if (here && find_package(prefix)) {
        found[BPS_PLACE_PACKAGE] = moved[BPS_PLACE_PACKAGE];
    }
}

const char *bps_place(enum bps_place place)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, place_find);
    return found[place];
}

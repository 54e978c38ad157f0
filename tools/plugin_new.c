/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin_new.c - see plugin_new.h.
 *
 * The templates lie beside the scripts. In their texts and in the names of their files, NAME stands for the plugin's.
 */
#include "tools/plugin_new.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conf/option.h"
#include "plugin/registry.h"
#include "tools/cmd.h"

#define PLACEHOLDER "NAME"
#define FILE_LIMIT  (1u << 20) /* no template is nearly as long */
#define NAME_LIMIT  ((unsigned)sizeof(((struct bps_note_body *)NULL)->name) - 1)

struct kit {
    const char *kind;
    const char *files[7]; /* below templates/, up to NULL; they keep the last part of their names */
};

static const struct kit kits[] = {
    {"compressor",
     {"compressor/compressor_NAME.c", "compressor/Makefile", "compressor/NAME.conf", "compressor/README.md", "sum.c"}},
    {"framework",
     {"framework/framework_NAME.c", "framework/Makefile", "framework/NAME.conf", "framework/README.md",
      "framework/NAME.py", "framework/check_NAME.py"}},
    {"reducer", {"reducer/reducer_NAME.c", "reducer/Makefile", "reducer/NAME.conf", "reducer/README.md", "sum.c"}},
    {"stage", {"stage/stage_NAME.c", "stage/Makefile", "stage/NAME.conf", "stage/README.md", "sum.c"}},
    {"transport",
     {"transport/transport_NAME.c", "transport/Makefile", "transport/NAME.conf", "transport/README.md", "sum.c"}},
};
#define KITS (sizeof kits / sizeof *kits)

/* ---- what is asked for --------------------------------------------------------------------------------- */

static const struct kit *find_kit(const char *kind)
{
    for (size_t i = 0; i < KITS; i++) {
        if (strcmp(kits[i].kind, kind) == 0) {
            return &kits[i];
        }
    }
    return NULL;
}

static int no_template(const char *kind)
{
    const char *names[KITS];
    char all[128] = "";

    for (size_t i = 0; i < KITS; i++) {
        size_t n = strlen(all);
        names[i] = kits[i].kind;
        snprintf(all + n, sizeof all - n, "%s%s", i == 0 ? "" : i + 1 < KITS ? ", " : " or ", names[i]);
    }
    if (bps_kind_from_name(kind)) {
        return bps_cmd_usage("plugin", "there is no template for a %s; expected %s", kind, all);
    }
    const char *near = bps_nearest(kind, names, KITS);
    return near ? bps_cmd_usage("plugin", "unknown kind '%s'; did you mean '%s'?", kind, near)
                : bps_cmd_usage("plugin", "unknown kind '%s'; expected %s", kind, all);
}

/* What plugin.h says of a plugin's name: it becomes a part of names in C, and of the file KIND_NAME.so. */
static bool is_name(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");

    return name[0] >= 'a' && name[0] <= 'z' && name[n] == '\0' && n <= NAME_LIMIT;
}

/* ---- one file ------------------------------------------------------------------------------------------ */

/* The text with the plugin's name in place of NAME; freed by the caller. */
static char *fill_in(const char *text, const char *name)
{
    char *out = bps_cmd_alloc(strlen(text) * NAME_LIMIT + 1, 1), *end = out;
    const char *next;

    for (; (next = strstr(text, PLACEHOLDER)) != NULL; text = next + strlen(PLACEHOLDER)) {
        end = mempcpy(end, text, (size_t)(next - text));
        end = stpcpy(end, name);
    }
    stpcpy(end, text);
    return out;
}

/* The text of a template; NULL and errno. Freed by the caller. */
static char *read_template(const char *path)
{
    FILE *file = fopen(path, "re");
    char *text;
    size_t n;

    if (!file) {
        return NULL;
    }
    text = bps_cmd_alloc(FILE_LIMIT, 1);
    n = fread(text, 1, FILE_LIMIT - 1, file);
    text[n] = '\0';
    if (ferror(file)) {
        free(text);
        text = NULL;
    }
    fclose(file);
    return text;
}

static bool write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "wxe");
    bool written;

    if (!file) {
        return false;
    }
    written = fputs(text, file) >= 0;
    return fclose(file) == 0 && written;
}

/* One file of the folder. `relative` is its template's, below templates/. */
static int make_file(const char *relative, const char *name)
{
    char *part = bps_cmd_print("templates/%s", relative);
    char *from = bps_cmd_find_script(part);
    char *own = fill_in(strrchr(part, '/') + 1, name);
    char *to = bps_cmd_print("%s/%s", name, own);
    char *text = read_template(from);
    int result = 0;

    if (!text) {
        result = bps_cmd_failure("plugin", "cannot read the template %s: %s; is BytePS installed as a whole?", from,
                                 strerror(errno));
    } else {
        char *filled = fill_in(text, name);
        if (!write_file(to, filled)) {
            result = bps_cmd_failure("plugin", "cannot write %s: %s", to, strerror(errno));
        }
        free(filled);
    }
    free(text);
    free(to);
    free(own);
    free(from);
    free(part);
    return result;
}

/* ---- the folder ---------------------------------------------------------------------------------------- */

static int make_folder(const struct kit *kit, const char *name)
{
    int result = 0;

    if (mkdir(name, 0777) != 0) {
        return errno == EEXIST
                   ? bps_cmd_failure("plugin", "'%s' already exists here; choose another name or folder", name)
                   : bps_cmd_failure("plugin", "cannot make the folder '%s': %s", name, strerror(errno));
    }
    for (size_t i = 0; result == 0 && kit->files[i]; i++) {
        result = make_file(kit->files[i], name);
    }
    return result;
}

int bps_plugin_new(const char *kind, const char *name)
{
    const struct kit *kit = find_kit(kind);
    int result;

    if (!kit) {
        return no_template(kind);
    }
    if (!is_name(name)) {
        return bps_cmd_usage("plugin",
                             "'%s' cannot be the name of a plugin; expected a letter a to z, then letters, digits and "
                             "underscores, %u characters at most",
                             name, NAME_LIMIT);
    }
    result = make_folder(kit, name);
    if (result != 0) {
        return result;
    }
    printf("%s has a %s that works. Build it, check it, put it where byteps looks for plugins:\n"
           "\n"
           "  cd %s && make && make check && make install\n"
           "\n"
           "%s/README.md shows the next steps.\n",
           name, kind, name, name);
    return bps_cmd_finish("plugin", 0);
}

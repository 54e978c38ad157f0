/* SPDX-License-Identifier: Apache-2.0 */
/* plan_model.c - the tensors of a model from a file, an installed one or the user's. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "base/place.h"
#include "base/tensor.h"
#include "base/text.h"
#include "conf/tree.h"
#include "conf/value.h"
#include "tools/cmd.h"
#include "tools/plan.h"
#include "scheduler/declared.h"

#define TENSORS_LIMIT (1u << 20)
#define BYTES_LIMIT   (1ull << 56) /* of a model */
#define LINE_LIMIT    4096

/* ---- where models are ---- */

/* The next directory of $BYTEPS_MODEL_PATH, at last the installed one, then NULL. Freed by the caller. */
static char *next_directory(const char **rest)
{
    if (*rest == NULL) {
        return NULL;
    }
    *rest += strspn(*rest, ":");
    size_t n = strcspn(*rest, ":");
    if (n == 0) {
        *rest = NULL;
        return bps_cmd_print("%s", bps_place(BPS_PLACE_MODELS));
    }
    char *directory = bps_cmd_print("%.*s", (int)n, *rest);
    *rest += n;
    return directory;
}

static const char *search_path(void)
{
    const char *path = getenv("BYTEPS_MODEL_PATH");
    return path == NULL ? "" : path;
}

/* The file of an installed model, or NULL. Freed by the caller. */
static char *installed(const char *word)
{
    const char *rest = search_path();
    char *directory, *found = NULL;
    struct stat status;
    while (strchr(word, '/') == NULL && found == NULL && (directory = next_directory(&rest)) != NULL) {
        found = bps_cmd_print("%s/%s.txt", directory, word);
        free(directory);
        if (stat(found, &status) != 0) {
            free(found);
            found = NULL;
        }
    }
    return found;
}

static int is_model(const struct dirent *entry)
{
    const char *dot = strrchr(entry->d_name, '.');
    return entry->d_name[0] != '.' && dot != NULL && strcmp(dot, ".txt") == 0;
}

/* One that an earlier directory hides is left out. */
static void add_model(struct bps_text *out, const char *directory, const char *file)
{
    char *word = bps_cmd_print("%.*s", (int)strlen(file) - 4, file), *path = bps_cmd_print("%s/%s", directory, file);
    char *first = installed(word);
    if (first == NULL || strcmp(first, path) == 0) {
        bps_text_add(out, "%s%s", out->length > 0 ? ", " : "", word);
    }
    free(word);
    free(path);
    free(first);
}

void bps_model_list(char *text, size_t n)
{
    const char *rest = search_path();
    char *directory;
    struct bps_text out = bps_text_in(text, n);
    while ((directory = next_directory(&rest)) != NULL) {
        struct dirent **entries;
        int count = scandir(directory, &entries, is_model, alphasort);
        for (int i = 0; i < count; i++) {
            add_model(&out, directory, entries[i]->d_name);
            free(entries[i]);
        }
        if (count >= 0) {
            free(entries);
        }
        free(directory);
    }
    if (out.length == 0) {
        bps_text_add(&out, "none");
    }
}

/* ---- reading ---- */

struct known_name {
    const char *name;
    unsigned line;
    UT_hash_handle hh;
};

struct model_file {
    const char *path;
    FILE *file;
    unsigned line;
    uint32_t room;
    struct known_name *names;
    struct bps_model *model;
    struct bps_report *report;
};

__attribute__((format(printf, 2, 3))) static bps_status refuse(struct model_file *f, const char *format, ...)
{
    char why[600];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    BPS_REPORT(f->report, "%.300s:%u: %s", f->path, f->line, why);
    return BPS_ERR_INVALID;
}

static bps_status find_dtype(struct model_file *f, const char *word, uint32_t *out)
{
    const char *names[BPS_DTYPES];
    char all[256];
    struct bps_text text = bps_text_in(all, sizeof all);
    for (uint32_t i = 0; i < BPS_DTYPES; i++) {
        names[i] = bps_dtype_name(i);
        if (strcmp(word, names[i]) == 0) {
            *out = i;
            return BPS_OK;
        }
        bps_text_add(&text, "%s%s", i > 0 ? ", " : "", names[i]);
    }
    const char *near = bps_nearest(word, names, BPS_DTYPES);
    return near != NULL ? refuse(f, "unknown data type %s; did you mean %s?", bps_shown(word).text, near)
                        : refuse(f, "unknown data type %s; expected %s", bps_shown(word).text, all);
}

/* A name may be there once only. */
static bps_status remember(struct model_file *f, const char *name)
{
    struct known_name *known;
    HASH_FIND_STR(f->names, name, known);
    if (known != NULL) {
        return refuse(f, "tensor %s is already in line %u", bps_shown(name).text, known->line);
    }
    known = bps_cmd_alloc(1, sizeof *known);
    known->name = name;
    known->line = f->line;
    HASH_ADD_KEYPTR(hh, f->names, known->name, strlen(known->name), known);
    if (known->hh.tbl == NULL) {
        free(known);
        return BPS_ERR_NOMEM;
    }
    return BPS_OK;
}

static bps_status add_tensor(struct model_file *f, const char *name, const char *count, const char *type)
{
    struct bps_model *model = f->model;
    int64_t n;
    uint32_t dtype = 0;
    if (strlen(name) > BPS_NAME_LIMIT) {
        return refuse(f, "the name has %zu bytes; expected at most %u", strlen(name), BPS_NAME_LIMIT);
    }
    if (bps_parse_int(count, &n) != BPS_OK || n < 0) {
        return refuse(f, "%s is not a count; expected the number of elements", bps_shown(count).text);
    }
    bps_status status = find_dtype(f, type, &dtype);
    if (status != BPS_OK) {
        return status;
    }
    uint64_t size = bps_dtype_size(dtype);
    if ((uint64_t)n > BPS_TENSOR_LIMIT / size || model->bytes + (uint64_t)n * size > BYTES_LIMIT) {
        return refuse(f, "%" PRId64 " elements are too large; a tensor has at most %llu bytes", n, BPS_TENSOR_LIMIT);
    }
    if (model->tensors == TENSORS_LIMIT) {
        return refuse(f, "too many tensors; expected at most %u", TENSORS_LIMIT);
    }
    if (model->tensors == f->room) {
        f->room = f->room == 0 ? 256 : 2 * f->room;
        struct bps_model_tensor *grown = bps_cmd_alloc(f->room, sizeof *grown);
        if (model->tensors > 0) {
            memcpy(grown, model->tensor, model->tensors * sizeof *grown);
        }
        free(model->tensor);
        model->tensor = grown;
    }
    char *copy = bps_cmd_print("%s", name);
    model->tensor[model->tensors++] = (struct bps_model_tensor){copy, (uint64_t)n, dtype};
    model->elements += (uint64_t)n;
    model->bytes += (uint64_t)n * size;
    return remember(f, copy);
}

/* "name count type", "# comment" or nothing. */
static bps_status read_line(struct model_file *f, char *line)
{
    char *word[4] = {NULL}, *rest = NULL;
    size_t n = 0;
    for (char *w = strtok_r(line, " \t\r\n", &rest); w != NULL && w[0] != '#'; w = strtok_r(NULL, " \t\r\n", &rest)) {
        if (n == 3) {
            return refuse(f, "unexpected %s; expected NAME COUNT TYPE, such as 'fc.weight 2048000 float32'",
                          bps_shown(w).text);
        }
        word[n++] = w;
    }
    if (n == 0) {
        return BPS_OK;
    }
    if (n < 3) {
        return refuse(f, "%s is missing; expected NAME COUNT TYPE, such as 'fc.weight 2048000 float32'",
                      n == 1 ? "the count" : "the data type");
    }
    return add_tensor(f, word[0], word[1], word[2]);
}

static bps_status read_lines(struct model_file *f)
{
    char line[LINE_LIMIT + 1];
    bps_status status = BPS_OK;
    int c = 0;
    while (status == BPS_OK && c != EOF) {
        size_t n = 0;
        while ((c = getc(f->file)) != EOF && c != '\n' && c != '\0' && n < LINE_LIMIT) {
            line[n++] = (char)c;
        }
        line[n] = '\0';
        f->line++;
        if (c == EOF || c == '\n') {
            status = read_line(f, line);
        } else if (c == '\0') {
            status = refuse(f, "a zero byte; expected text, is this a list of tensors?");
        } else {
            status = refuse(f, "the line is too long; expected at most %d bytes", LINE_LIMIT);
        }
    }
    if (status == BPS_OK && ferror(f->file)) {
        BPS_REPORT(f->report, "%.300s: cannot be read: %s", f->path, strerror(errno));
        return BPS_ERR_IO;
    }
    if (status == BPS_OK && f->model->tensors == 0) {
        BPS_REPORT(f->report, "%.300s: there is no tensor in it; expected lines NAME COUNT TYPE", f->path);
        return BPS_ERR_INVALID;
    }
    return status;
}

static void forget_names(struct model_file *f)
{
    struct known_name *known, *next;
    HASH_ITER(hh, f->names, known, next) {
        HASH_DEL(f->names, known);
        free(known);
    }
}

bps_status bps_model_read(const char *word, struct bps_model *out, struct bps_report *report)
{
    char all[600];
    char *path = installed(word);
    struct model_file f = {.path = path != NULL ? path : word, .model = out, .report = report};
    bps_status status = BPS_ERR_IO;
    memset(out, 0, sizeof *out);
    f.file = fopen(f.path, "re");
    if (f.file != NULL) {
        out->name = bps_cmd_print("%s", word);
        status = read_lines(&f);
        fclose(f.file);
        forget_names(&f);
    } else if (errno == ENOENT && strchr(word, '/') == NULL) {
        bps_model_list(all, sizeof all);
        BPS_REPORT(report, "there is neither a model nor a file %s; installed models: %s", bps_shown(word).text, all);
    } else {
        BPS_REPORT(report, "%.300s: cannot be opened: %s", f.path, strerror(errno));
    }
    free(path);
    if (status != BPS_OK) {
        bps_model_fini(out);
    }
    return status;
}

void bps_model_fini(struct bps_model *model)
{
    for (uint32_t i = 0; i < model->tensors; i++) {
        free(model->tensor[i].name);
    }
    free(model->tensor);
    free(model->name);
    memset(model, 0, sizeof *model);
}

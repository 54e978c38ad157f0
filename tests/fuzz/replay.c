/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay.c - the main function of a fuzz target that was built without libFuzzer: it runs the target once for
 * each file of the folders it is given, and for an empty input.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INPUT_MAX (16u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The target gets a block of exactly the file's size, so that a sanitizer sees each byte read beyond it. */
static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    uint8_t *data = NULL;
    long size = -1;
    int status = -1;

    if (!file) {
        perror(path);
        return -1;
    }
    if (fseek(file, 0, SEEK_END) == 0) {
        size = ftell(file);
    }
    if (size >= 0 && size <= (long)INPUT_MAX) {
        data = malloc(size ? (size_t)size : 1);
    }
    if (data && fseek(file, 0, SEEK_SET) == 0 && fread(data, 1, (size_t)size, file) == (size_t)size) {
        LLVMFuzzerTestOneInput(data, (size_t)size);
        status = 0;
    } else {
        fprintf(stderr, "%s: cannot be read\n", path);
    }
    free(data);
    fclose(file);
    return status;
}

static int replay_folder(const char *folder, unsigned *count)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    int status = 0;

    if (!dir) {
        perror(folder);
        return -1;
    }
    while ((entry = readdir(dir)) != NULL) {
        char path[4096];

        if (entry->d_name[0] == '.') {
            continue;
        }
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        if (replay_file(path)) {
            status = -1;
        }
        ++*count;
    }
    closedir(dir);
    return status;
}

int main(int argc, char **argv)
{
    unsigned count = 0;
    int failed = 0;

    for (int i = 1; i < argc; i++) {
        if (argv[i][0] != '-' && replay_folder(argv[i], &count)) {
            failed = 1;
        }
    }
    LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
    printf("%s: %u inputs\n", argv[0], count);
    return failed;
}

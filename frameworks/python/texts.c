/* SPDX-License-Identifier: Apache-2.0 */
/* texts.c - strings from Python that outlive the objects which they come from. */
#include "python.h"

#include <stdlib.h>
#include <string.h>

void python_texts_free(void *arg)
{
    struct python_texts *texts = arg;

    for (size_t i = 0; i < texts->count; i++)
        free(texts->items[i]);
    free(texts->items);
    free(texts->text);
    free(texts);
}

/* A copy of the text of a str object; NULL with an exception. */
static char *copy_text(PyObject *string)
{
    PyObject *bytes = PyUnicode_AsUTF8String(string);
    char *text, *copy = NULL;

    if (bytes == NULL)
        return NULL;
    if (PyBytes_AsStringAndSize(bytes, &text, NULL) == 0) { /* refuses NUL bytes */
        copy = strdup(text);
        if (copy == NULL)
            PyErr_NoMemory();
    }
    Py_DECREF(bytes);
    return copy;
}

struct python_texts *python_texts_new(const char *text, PyObject *sequence)
{
    Py_ssize_t count = PySequence_Size(sequence);
    struct python_texts *texts;

    if (count < 0)
        return NULL;
    texts = calloc(1, sizeof(*texts));
    if (texts == NULL)
        goto no_memory;
    texts->items = calloc((size_t)count + 1, sizeof(texts->items[0]));
    texts->text = text == NULL ? NULL : strdup(text);
    if (texts->items == NULL || (text != NULL && texts->text == NULL))
        goto no_memory;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = PySequence_GetItem(sequence, i);

        texts->items[i] = item == NULL ? NULL : copy_text(item);
        Py_XDECREF(item);
        if (texts->items[i] == NULL)
            goto fail;
        texts->count++;
    }
    return texts;

no_memory:
    PyErr_NoMemory();
fail:
    if (texts != NULL)
        python_texts_free(texts);
    return NULL;
}

struct bps_init_options python_texts_options(const struct python_texts *texts)
{
    return (struct bps_init_options){
        .size = sizeof(struct bps_init_options),
        .conf = texts->text,
        .set = (const char *const *)texts->items,
        .nset = texts->count,
    };
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * framework_NAME.c - the framework binding NAME for BytePS: what Python calls by ctypes to sum arrays.
 *
 * A framework loads its binding, and that calls libbyteps. What fails returns a text, which is valid until the next
 * call of the thread; NULL is success.
 */
#include <byteps/byteps.h>
#include <byteps/framework.h>

static _Thread_local struct bps_report report;

static const char *result_of(bps_status status)
{
    return status == BPS_OK ? NULL : report.text[0] ? report.text : bps_strerror(status);
}

/* Joins the job. */
BPS_API const char *NAME_init(void);
const char *NAME_init(void)
{
    static const struct bps_binding binding = {
        .size = sizeof binding, .abi = BPS_BINDING_ABI, .name = "NAME", .version = "0.1.0", .framework = "Python"};
    bps_status status;

    report.text[0] = 0;
    status = bps_binding_register(&binding, &report);
    return result_of(status == BPS_OK ? bps_init(NULL, &report) : status);
}

/* The sum over all workers, in the place of this worker's values. */
BPS_API const char *NAME_push_pull(const char *name, float *values, size_t count);
const char *NAME_push_pull(const char *name, float *values, size_t count)
{
    const struct bps_push_pull request = {
        .size = sizeof request,
        .name = name,
        .in = values,
        .out = values,
        .count = count,
        .dtype = BPS_FLOAT32,
        .op = BPS_SUM,
        .prescale = 1,
        .postscale = 1,
    };
    bps_handle handle;
    bps_status status;

    report.text[0] = 0;
    status = bps_push_pull_async(&request, &handle, &report);
    return result_of(status == BPS_OK ? bps_wait(handle, BPS_FOREVER, &report) : status);
}

BPS_API int NAME_rank(void);
int NAME_rank(void)
{
    return (int)bps_rank();
}

/* Leaves the job. */
BPS_API void NAME_shutdown(void);
void NAME_shutdown(void)
{
    bps_shutdown(NULL);
}

/* By these `byteps plugin list` knows the file: its name and version, and the Python module that it serves. */
BPS_PLUGIN_NOTE(BPS_KIND_FRAMEWORK, "NAME", "0.1.0");
BPS_FRAMEWORK_NOTE("array", "0");

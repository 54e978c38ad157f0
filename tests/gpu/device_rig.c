/* SPDX-License-Identifier: Apache-2.0 */
/* device_rig.c - see device_rig.h. */
#include "device_rig.h"

#include <dlfcn.h>
#include <string.h>

#include <byteps/reducer.h>

#include "conf/conf.h"

#define DEADLINE (100ull * 1000000000ull) /* ns after which the test has failed */

struct device_rig rig;

/* A library that the plugin is to get, too: the stand-in, unless the tests are for a GPU. NULL: see
 * dlerror(). */
static void *library_open(const char *folder, const char *name)
{
    const char *real = getenv("TEST_GPU"), *build = getenv("top_builddir");
    char path[4096];
    snprintf(path, sizeof path, "%s/tests/gpu/standin/%s/%s", build != NULL ? build : ".", folder, name);
    return dlopen(real != NULL && strcmp(real, "1") == 0 ? name : path, RTLD_NOW | RTLD_GLOBAL);
}

void rig_open_driver(void)
{
    struct CUctx_st *context;
    void *library = library_open(".libs", "libcuda.so.1");
    EXPECT(library != NULL, "%s", dlerror());
#define FIND(symbol, parameters)                                                                                       \
    *(void **)&rig.driver.symbol = dlsym(library, #symbol);                                                            \
    EXPECT(rig.driver.symbol != NULL, "%s", dlerror());
    RIG_DRIVER(FIND)
    CUDA(cuInit, 0);
    CUDA(cuDevicePrimaryCtxRetain, &context, 0);
    CUDA(cuCtxSetCurrent, context);
}

void rig_open_nccl(void)
{
    if (library_open("nccl/.libs", "libnccl.so.2") == NULL) {
        printf("skipped: %s\n", dlerror());
        exit(77);
    }
}

void rig_open_reducer(void)
{
    static const struct bps_conf_node group = {.kind = BPS_CONF_GROUP, .origin = "test"};
    struct bps_report report = {""};
    rig.loop = bps_loop_new();
    bps_status status =
        bps_instance_open(BPS_KIND_REDUCER, "cuda", "cuda", &group, "reducers.cuda", rig.loop, &rig.instance, &report);
    EXPECT(status == BPS_OK, "%s", report.text);
    rig.ops = ((const struct bps_reducer_ops *)rig.instance->ops)->device;
}

void rig_close_reducer(void)
{
    bps_instance_close(rig.instance);
    bps_loop_free(rig.loop);
}

void rig_done(void *arg, bps_status status, const char *text)
{
    (void)arg;
    EXPECT(status == BPS_OK, "%s", text);
    if (--rig.left == 0) {
        bps_loop_stop(rig.loop);
    }
}

static void too_late(void *arg)
{
    (void)arg;
    EXPECT(false, "nothing has happened for too long");
}

void rig_run(void)
{
    struct bps_timer *timer = bps_loop_timer(rig.loop, DEADLINE, 0, too_late, NULL);
    bps_loop_run(rig.loop);
    bps_loop_cancel(rig.loop, timer);
}

void rig_write(unsigned long long memory, const void *bytes, size_t count)
{
    CUDA(cuMemcpyHtoD_v2, memory, bytes, count);
    CUDA(cuStreamSynchronize, NULL); /* the copy may have returned before the bytes are there */
}

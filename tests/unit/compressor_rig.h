/* SPDX-License-Identifier: Apache-2.0 */
/* compressor_rig.h - what the tests of compressors share: the core's part, and memory at odd addresses. */
#ifndef BPS_COMPRESSOR_RIG_H
#define BPS_COMPRESSOR_RIG_H

#include <byteps/compressor.h>

#define RIG_ISAS 4 /* auto, baseline, avx2, avx512: the values of the option isa */

struct rig_setting {
    const char *name;
    double value; /* of any type of option */
};

struct rig {
    const struct bps_compressor_ops *ops;
    void *instance;
    struct bps_report report;
};

/* Opens the only plugin of the module as the core does; `settings` has a value for each of its options. */
bps_status rig_open(struct rig *rig, const struct bps_module *module, const struct rig_setting *settings, size_t n);

/* Memory of exactly so many bytes at an odd address, for valgrind and the sanitizers to watch; `base` is freed. */
uint8_t *rig_odd(size_t bytes, void **base);

/* Element `i` of float32 or float64, as float64. */
double rig_get(uint32_t dtype, const void *elements, size_t i);
void rig_put(uint32_t dtype, void *elements, size_t i, double value);

size_t rig_size(uint32_t dtype);

#endif

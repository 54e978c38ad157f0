/* SPDX-License-Identifier: Apache-2.0 */
/*
 * place.h - where this installation has its parts: as configured, or, if it was moved, where they lie from here.
 *
 * A wheel for Python is installed wherever that has its packages, and so knows nothing but its own order.
 */
#ifndef BPS_BASE_PLACE_H
#define BPS_BASE_PLACE_H

enum bps_place {
    BPS_PLACE_PLUGINS,
    BPS_PLACE_PYTHON,  /* a folder with nothing but the Python package; may be absent, as in a wheel */
    BPS_PLACE_PACKAGE, /* the folder where Python finds the package, perhaps among others; may be absent */
    BPS_PLACE_MODELS,
    BPS_PLACE_SCRIPTS,
    BPS_PLACE_PKGCONFIG,
    BPS_PLACES
};

/* A folder; valid for ever. Thread-safe. */
const char *bps_place(enum bps_place place);

#endif

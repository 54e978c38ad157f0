/* SPDX-License-Identifier: Apache-2.0 */
/* version.c - the versions that `byteps run --version` prints: what works with what (docs/versions.md). */
#include "tools/cmd.h"

#include <stdio.h>

#include <byteps/byteps.h>
#include <byteps/framework.h>
#include <byteps/plugin.h>

#include "wire/frame.h"

void bps_cmd_versions(void)
{
    printf("byteps %s\n"
           "wire          %u: all processes of a job need the same\n"
           "plugin ABI    %u.%u: plugins built for ABI %u.x work, older or newer, and those for 0.20\n"
           "library       libbyteps.so.0: programs built for it work\n"
           "Python        package byteps-c %s; binding ABI %u: both are of the library's version\n",
           bps_version(), BPS_WIRE_VERSION, BPS_ABI_MAJOR, BPS_ABI_MINOR, BPS_ABI_MAJOR, bps_version(),
           BPS_BINDING_ABI);
}

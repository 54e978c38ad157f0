/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_new.h - `byteps plugin new`: a folder with a small plugin that works, from the installed templates. */
#ifndef BPS_CMD_PLUGIN_NEW_H
#define BPS_CMD_PLUGIN_NEW_H

/* Makes the folder ./NAME with a plugin of this kind. Returns the exit status. */
int bps_plugin_new(const char *kind, const char *name);

#endif

# SPDX-License-Identifier: Apache-2.0
# plugin.mk - builds, checks and installs one plugin from outside of BytePS. A Makefile sets what is listed here and then
# has the line
#
#     include $(shell pkg-config --variable=pluginmk byteps)
#
#   PLUGIN         KIND_NAME, such as stage_scale
#   SOURCES        its files in C; without it PLUGIN.c
#   LDLIBS         what it is linked with, such as -lm
#   CHECK          the command that two workers run in `make check`: it fails where the plugin is wrong
#   CHECK_PROGRAM  a program of that command that is made of one file in C, with libbyteps: one of this folder, or
#                  sum, which BytePS has
#   CHECK_OPTIONS  further options of `byteps run` for it
#   BENCH_FLAGS    options of `byteps plugin bench`, such as --bytes 1MiB
#
# `make check` runs the conformance suite of the kind, `byteps plugin check`, and then a job with the plugin;
# `make bench` measures it beside the reference of its kind, `byteps plugin bench`.
# make, make check, make bench, make install, make uninstall, make clean. CC, CFLAGS, DESTDIR, plugindir and so on are
# as usual.

PKG_CONFIG ?= pkg-config
INSTALL ?= install
CFLAGS ?= -O2 -g -Wall -Wextra
SOURCES ?= $(PLUGIN).c
BYTEPS ?= $(shell $(PKG_CONFIG) --variable=program byteps)
BYTEPS_CFLAGS ?= $(shell $(PKG_CONFIG) --cflags byteps)
BYTEPS_LIBS ?= $(shell $(PKG_CONFIG) --libs byteps)
plugindir ?= $(shell $(PKG_CONFIG) --variable=plugindir byteps)

plugin_rules := $(dir $(lastword $(MAKEFILE_LIST)))
plugin_kind := $(firstword $(subst _, ,$(PLUGIN)))
plugin_name := $(patsubst $(plugin_kind)_%,%,$(PLUGIN))
byteps_here := BYTEPS_PLUGIN_PATH='$(CURDIR)' $(BYTEPS)

all: $(PLUGIN).so

$(PLUGIN).so: $(SOURCES)
	$(CC) -std=gnu11 $(CPPFLAGS) $(BYTEPS_CFLAGS) $(CFLAGS) -fPIC -fvisibility=hidden -shared $(LDFLAGS) \
	    -o $@ $(SOURCES) $(LDLIBS)

# sum.c, where the folder has none
vpath sum.c $(plugin_rules)scripts/templates

ifneq ($(CHECK_PROGRAM),)
$(CHECK_PROGRAM): %: %.c
	$(CC) -std=gnu11 $(CPPFLAGS) $(BYTEPS_CFLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $< $(BYTEPS_LIBS)
endif

# The plugin of this folder goes before an installed one.
check: $(PLUGIN).so $(CHECK_PROGRAM)
ifneq ($(plugin_kind),framework)
	$(byteps_here) plugin check ./$(PLUGIN).so
endif
	$(byteps_here) run -n 2 -s 1 --conf $(plugin_name).conf $(CHECK_OPTIONS) -- $(CHECK)

bench: $(PLUGIN).so
	$(byteps_here) plugin bench ./$(PLUGIN).so $(BENCH_FLAGS)

install: $(PLUGIN).so
	$(INSTALL) -d $(DESTDIR)$(plugindir)
	$(INSTALL) -m 644 $(PLUGIN).so $(DESTDIR)$(plugindir)

uninstall:
	rm -f $(DESTDIR)$(plugindir)/$(PLUGIN).so

clean:
	rm -f $(PLUGIN).so $(CHECK_PROGRAM)

.PHONY: all check bench install uninstall clean

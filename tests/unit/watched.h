/* SPDX-License-Identifier: Apache-2.0 */
/* watched.h - loops over many values take every so manieth under a sanitizer, where each takes many times as long. */
#ifndef WATCHED_H
#define WATCHED_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define EVERY(n) (n)
#else
#define EVERY(n) 1
#endif

#endif

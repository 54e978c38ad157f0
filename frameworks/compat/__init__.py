# SPDX-License-Identifier: Apache-2.0
"""Interfaces of other programs, made of BytePS."""

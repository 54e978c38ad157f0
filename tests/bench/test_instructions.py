# SPDX-License-Identifier: Apache-2.0
"""The guard of the hot paths sees what is planted: growth, a case that is new or gone, another compiler or build."""

import contextlib
import io
import os
import re
import sys
import unittest
import unittest.mock

sys.path.append(os.path.join(os.environ["top_srcdir"], "bench", "guard"))

import instructions  # noqa: E402  (it lies in the folder that was just added)

KNOWN = {'toolchain': 'gcc 12', 'instructions': {'decode': 100, 'encode': 40}}


def check(counts, tools='gcc 12'):
    """(status, what was printed)"""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        status = instructions.check(KNOWN, tools, counts)
    return status, output.getvalue()


class Guard(unittest.TestCase):
    def test_a_little_more_is_tolerated(self):
        status, text = check({'decode': 104, 'encode': 40})
        self.assertEqual(status, 0, text)

    def test_growth_fails_with_name_and_amount(self):
        status, text = check({'decode': 100, 'encode': 43})
        self.assertEqual(status, 1, text)
        self.assertIn('FAIL: encode: 43 instructions instead of 40, 7.5% more\n', text)
        self.assertIn('bench-record', text)
        self.assertNotIn('FAIL: decode', text)

    def test_gain_is_told(self):
        status, text = check({'decode': 50, 'encode': 40})
        self.assertEqual(status, 0, text)
        self.assertIn('50.0% less', text)

    def test_cases_must_be_those_recorded(self):
        status, text = check({'decode': 100, 'queue': 7})
        self.assertEqual(status, 1, text)
        self.assertIn('FAIL: encode: recorded, but there is no such case\n', text)
        self.assertIn('FAIL: queue: not recorded\n', text)

    def test_another_compiler_is_not_judged(self):
        status, text = check({'decode': 200, 'encode': 40}, tools='clang 14')
        self.assertEqual(status, instructions.SKIPPED, text)
        self.assertEqual(text.splitlines()[-1], 'skipped: recorded with gcc 12; here is clang 14')
        self.assertIn('+100.0%', text)

    def test_only_a_plain_build_is_judged(self):
        """The table is that of this build: where its words change, the guard must know them."""
        plain = re.sub(r'(sanitizer|debug|coverage): [^ ]*?(?=,? )', r'\1: no',
                       instructions.output_of(['byteps', 'info', '--build']))
        with unittest.mock.patch('shutil.which', return_value='/usr/bin/valgrind'):
            self.assertIsNone(instructions.reason_to_skip(plain))
            for word in ('sanitizer', 'debug', 'coverage'):
                with self.subTest(word=word):
                    self.assertIn(f'{word}: no,', plain)
                    other = plain.replace(f'{word}: no', f'{word}: yes')
                    self.assertIn(f'{word}: yes', instructions.reason_to_skip(other))

# SPDX-License-Identifier: Apache-2.0
"""Hundreds of models, one after the other, in one process of each worker: byteps.torch forgets those that are gone."""

import unittest

import scripted

scripted.require("torch")


class Search(scripted.TestCase):
    """Its workers start afresh: each finds the other processes of the job by their parent."""

    def test_with_a_server(self):
        self.run_script("torch_search.py", workers=2, servers=1)

    def test_on_one_host(self):
        self.run_script("torch_search.py", workers=3, servers=0)


if __name__ == "__main__":
    unittest.main()

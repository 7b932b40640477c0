# SPDX-License-Identifier: BSD-2-Clause
"""
rdma_core_tests.py TABLE --dev NAME - runs all of rdma-core's tests in the folder tests, below the current one.

Fails if a test does, if too few passed, or if one is skipped that is not in the table of a Markdown file (pyverbs.md).
"""
import fnmatch
import importlib.machinery
import os
import sys
import unittest

LEAST = 90  # tests that have to pass: fewer are there if the package, or the list of devices, is not what it should be

here = os.getcwd()
table = sys.argv.pop(1)
sys.path[:0] = [os.path.join(here, 'tests'), here]


def rows(path):
    """Returns (pattern of names, pattern of reasons) of each row."""
    with open(path, encoding='utf-8') as f:
        cells = [line.strip('|\n ').split(' | ') for line in f if line.startswith('| `')]
    return [(name.strip('`'), why) for name, why, _ in cells]


def is_expected(name, why, allowed):
    # Reasons have no wildcards but those of the table.
    return any(fnmatch.fnmatchcase(name, n) and fnmatch.fnmatchcase(why, w) for n, w in allowed)


class Result(unittest.TextTestResult):
    passed = 0

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed += 1


def main():
    from args_parser import parser
    tests = importlib.machinery.SourceFileLoader('tests', 'tests/__init__.py').load_module()
    parser.parse_args()
    allowed = rows(table)
    runner = unittest.TextTestRunner(verbosity=2, resultclass=Result)
    r = unittest.main(module=tests, exit=False, testRunner=runner).result
    skips = [(t.id().removeprefix('tests.'), ' '.join(why.split())) for t, why in r.skipped]
    strange = [s for s in skips if not is_expected(*s, allowed)]
    for name, why in strange:
        print(f'skipped, and not in {os.path.basename(table)}: {name}: {why}')
    print(f'{r.passed} passed, {len(skips)} skipped, {len(r.failures)} failures, {len(r.errors)} errors')
    return 0 if r.wasSuccessful() and not strange and r.passed >= LEAST else 1


sys.exit(main())

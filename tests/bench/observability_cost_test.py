#!/usr/bin/env python3
"""The interval that observability_cost.py prints."""
import random
import unittest

import observability_cost


class MedianIntervalTest(unittest.TestCase):
    def test_ranks_are_those_of_tables(self):
        # Conover, Practical Nonparametric Statistics: for the median of 10 values at 95% the second
        # and the ninth; of 20 the sixth and the fifteenth; of 5 no two suffice: the outermost.
        for n, rank in ((10, 2), (20, 6), (5, 1), (1, 1)):
            values = list(range(1, n + 1))
            random.Random(n).shuffle(values)
            self.assertEqual(observability_cost.median_interval(values),
                             ((n + 1) / 2, rank, n + 1 - rank), n)

    def test_the_true_median_lies_within_as_often_as_promised(self):
        source = random.Random(5)
        hits = 0
        for _ in range(1000):
            _, low, high = observability_cost.median_interval([source.gauss(3, 1) for _ in range(31)])
            hits += low <= 3 <= high
        self.assertGreaterEqual(hits, 940)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""words_test.py: words.py finds hard words, and leaves plain ones alone."""

import unittest

import words


class WordsTest(unittest.TestCase):
    def test_hard_words_are_found_with_their_line(self):
        for hard in (
            "// The connection is told, from any thread.",
            "// how to mend them",
            "// Requests set aside for want of a block.",
            "// Who holds a node holds its parents.",
            "// held by more than who reads",
            "// A text that is none is refused.",
            "// A body of which nothing came.",
            "// The sampler decides as ever.",
            "// Empties the buffer of what is left.",
            "// What is left of the other anchor stays in it.",
            "## What is in it",
            "// Longer pieces than the shortest are no more.",
            "// What it stores is stored over.",
            "// 1 if there is none to be had",
            "// Beginnings that were computed before",
            "// The same, of which the source has a row each.",
            "// exchanges nothing but the residual",
        ):
            with self.subTest(hard):
                found = words.findings("a.h", "// plain\n" + hard)
                self.assertEqual(len(found), 1, found)
                self.assertTrue(found[0].startswith("a.h:2: '"), found)

    def test_plain_words_pass(self):
        for plain in (
            "// kNoBlock when there is none.",
            "// as many as were asked for",
            "curl -d 'What is the capital of Japan?'",
            "a program of which version?",
            "Who are you?",
            "// Recommended: told apart by their ids.",
        ):
            with self.subTest(plain):
                self.assertEqual(words.findings("a.h", plain), [])

    def test_advice_comes_with_each_rule(self):
        for _, advice in words.RULES:
            self.assertTrue(advice)


if __name__ == "__main__":
    unittest.main()
